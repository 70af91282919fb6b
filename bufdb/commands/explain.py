"""`bufdb explain`: compiles a function of a file and shows what its memory is at the peak."""

from __future__ import annotations

import os
import sys
import tempfile
from functools import partial
from pathlib import Path

import click

from bufdb.commands import common
from bufdb.report import colour


@click.command(name="explain", short_help="Compile a function, also for a TPU, and summarise it.")
@click.argument("spec", metavar="FILE.py:FUNCTION")
@click.option(
    "--args",
    "args",
    metavar="PYTHON",
    default="",
    help="Its arguments: shapes as f32[8,128], trees of them, and names of FILE.",
)
@click.option(
    "--target",
    metavar="TARGET",
    help="Hardware that need not be there: tpu:v5e:2x2, gpu:h100 or gpu:FILE.",
)
@click.option("--run", metavar="NAME", help="Name of the run; the function's and the target's.")
@click.option("--label", "labels", metavar="K=V", multiple=True, help="Label of the run.")
@common.own_option
@common.limit_option
@click.option(
    "--format",
    "format_name",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Form of the answer; json holds exact numbers.",
)
@common.output_option
@common.db_option
def command(
    spec: str,
    args: str,
    target: str | None,
    run: str | None,
    labels: tuple[str, ...],
    own: tuple[str, ...],
    limit: str | None,
    format_name: str,
    output: Path | None,
    db: str,
) -> None:
    r"""Compile FUNCTION of FILE for its arguments, without running it, and show the highest peak.

    \b
      bufdb explain train.py:step --args '{"w": f32[1024,1024]}, f32[32,1024]'
      bufdb explain train.py:step --args 'state(), batch(8)' --target tpu:v5e:2x2

    FILE is imported in a process of its own, by the Python that bufdb runs in; FUNCTION may be
    plain or jitted. What it compiles to is stored in the database as a run, which replaces one of
    the same name: 'bufdb what-if', 'bufdb query' and 'bufdb diff' answer further.

    With --target JAX compiles ahead of time for hardware that need not be there. Arguments that are
    sharded over a mesh are sharded so over devices of the target, others are for one of them; the
    limit is that device's memory. tpu:v5e:2x2 is a generation and a topology of TPUs and takes the
    package libtpu (pip install 'bufdb[tpu]'). gpu:h100 is eight of them and takes the packages
    jax-cuda12-pjrt and jax-cuda12-plugin; gpu:FILE is any GPU of which FILE is XLA's description
    (a GpuTargetConfigProto as text). Of a GPU nothing is timed, as XLA would for some operations.

    \b
    Exit codes:
      0  compiled
      1  the function cannot be compiled, or a package is missing
      2  wrong usage
      3  database in use, damaged, not writable or of another version
    """
    from bufdb.api.questions.summary import summary as ask
    from bufdb.compiled.process import compiled_apart
    from bufdb.ingest.ingest import ingest
    from bufdb.report import summary
    from bufdb.summary.devices import limit_of
    from bufdb.summary.overview import DEVICE_LABEL, glob

    pairs = common.parse_labels(labels)
    limit_of(limit)  # before anything is compiled
    name = run or spec.rpartition(":")[2] + ("" if target is None else f"@{target}")
    with tempfile.TemporaryDirectory(prefix="bufdb-") as folder:
        dumps, device = compiled_apart(spec, args, target, Path(folder))
        metadata = {DEVICE_LABEL: device} | ({} if target is None else {"target": target})
        done = ingest(
            db,
            [dumps],
            run=name,
            labels=pairs,
            metadata=metadata,
            own_globs=common.own_globs(own),
            replace=True,
            source_path=spec,
        )
    for text in done.notes:
        common.note(text)
    opened = partial(common.open_database, db)
    found = ask(opened, run=glob(name), limit=limit).found
    is_coloured = output is None and format_name == "text" and colour.wanted(sys.stdout, os.environ)
    text = (
        summary.as_json(found)
        if format_name == "json"
        else summary.text(found, is_coloured=is_coloured)
    )
    common.write(text, output, is_safe=is_coloured)
