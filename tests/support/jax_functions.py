"""Functions of JAX on every way into a database; `tests/capture/test_jax_functions.py` runs it.

    python jax_functions.py DATABASE MODELS FOLDER

Of each program of data/model/loops.py the runs are: `text`, the dump that XLA wrote; `lowered` and
`compiled`, what JAX's stages gave; `captured`, what was compiled in a block. Writes to standard
output, as JSON, what else came of them.
"""

import json
import sys
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp

import bufdb
from bufdb.errors import BufdbError


def refused(action):
    try:
        action()
    except BufdbError as error:
        return str(error)
    return None


def main(database, models, folder):
    sys.path.insert(0, models)
    import loops

    db = bufdb.connect(database)
    results = {"programs": list(loops.PROGRAMS), "again": {}}
    for number, (name, (function, *inputs)) in enumerate(loops.PROGRAMS.items()):
        lowered = jax.jit(function).lower(*inputs)
        lowered.compile(compiler_options={"xla_dump_to": str(Path(folder) / name)})
        db.ingest(lowered, run="lowered")
        db.ingest(lowered.compile(), run="compiled")
        # Once more, from one stage or, lowered again, from the other.
        if number % 2:
            again = db.ingest(lowered, run="lowered")
        else:
            again = db.ingest(jax.jit(function).lower(*inputs).compile(), run="compiled")
        results["again"][name] = [again.module_count, again.unchanged_count]
    db.ingest(folder, run="text")
    jax.clear_caches()
    with db.capture(run="captured"):
        for function, *inputs in loops.PROGRAMS.values():
            jax.jit(function).lower(*inputs).compile()

    def nothing():
        with db.capture(run="nothing"):
            pass

    def plain(w, x):
        return jnp.tanh(x @ w)

    shapes = [jax.ShapeDtypeStruct((64, 64), "float32"), jnp.ones((8, 64))]
    from jax._src import compiler

    before = compiler.get_compile_options
    results["nothing"] = refused(nothing)
    results["is_restored"] = compiler.get_compile_options is before
    results["left"] = [str(path) for path in Path(tempfile.gettempdir()).glob("bufdb-*/*/module_*")]
    results["plain"] = bufdb.explain(plain, *shapes).data["peak"]
    results["by_name"] = bufdb.explain(plain, w=shapes[0], x=shapes[1]).data["peak"]
    answer = bufdb.explain(jax.jit(plain).lower(*shapes), limit="1KiB")
    results["limited"] = str(answer)
    results["further"] = answer.db.query("modules").fetchall()[0][1]
    results["stage_with_args"] = refused(lambda: bufdb.explain(jax.jit(plain).lower(*shapes), 1))
    results["no_function"] = refused(lambda: bufdb.explain(3))
    results["compiled_options"] = refused(
        lambda: db.ingest(jax.jit(plain).lower(*shapes).compile(), compiler_options={"a": 1})
    )
    print(json.dumps(results))


if __name__ == "__main__":
    main(*sys.argv[1:])
