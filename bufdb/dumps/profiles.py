"""Profiles of `jax.profiler`: the newest at a path, from its files to the times of instructions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from bufdb.dumps.archives import expand, is_archive
from bufdb.dumps.files import Problem, open_file
from bufdb.dumps.modules import TIMES_SUFFIXES
from bufdb.dumps.place import Place
from bufdb.errors import BufdbError, UsageError
from bufdb.proto import pprof, xplane
from bufdb.proto.reader import MOST_BYTES, UnreadableProto, unpacked
from bufdb.proto.xplane import Profile

NO_GRAPHS = "XLA_FLAGS=--xla_gpu_enable_command_buffer="


def find(path: Path, note: Callable[[str], None]) -> list[Path | Place]:
    """Return the files of the newest profile at a path, one for each host.

    `jax.profiler` puts each profile into a folder of its own, which its time names:
    plugins/profile/2026_01_31_12_00_00. What is not read is reported to `note`.

    Raises:
        UsageError: there is none.
    """
    if path.is_file() and not is_archive(path.name):
        return [path]
    sessions: dict[Path, list[Path | Place]] = {}
    for name, file in _files(path):
        if name.endswith(TIMES_SUFFIXES):
            sessions.setdefault(Path(name).parent, []).append(file)
    if not sessions:
        raise UsageError(
            f"no profile in {path}: 'jax.profiler.trace' writes FILE.xplane.pb into "
            "plugins/profile/TIME below the folder that it is given"
        )
    newest = max(sessions, key=lambda folder: (folder.name, str(folder)))
    if len(sessions) > 1:
        others = len(sessions) - 1
        was = "1 older profile is" if others == 1 else f"{others} older profiles are"
        note(f"read {newest}; {was} left out, whose folder can be named instead")
    return sorted(sessions[newest], key=lambda file: file.name)


def _files(path: Path) -> list[tuple[str, Path | Place]]:
    """Return the files of a folder or archive that may be profiles, by name.

    Raises:
        UsageError: it cannot be read.
    """
    if not path.is_file():
        try:
            return [(str(file), file) for file in path.rglob("*.xplane.pb*") if file.is_file()]
        except OSError as error:
            raise UsageError(f"cannot read {path}: {error.strerror}") from error
    odd: list[Problem] = []
    files = expand({str(path): path}, odd, is_given=True)
    if not files and odd:
        raise UsageError(f"{path} {odd[0].message}")
    return list(files.items())


def load(path: Path, note: Callable[[str], None]) -> Profile:
    """Return the instructions of the profile at a path.

    Raises:
        UsageError: there is none.
        BufdbError: it cannot be read.
    """
    files = find(path, note)
    whole = Profile()
    for number, file in enumerate(files):
        try:
            if not isinstance(file, Path) and file.stat().st_size > MOST_BYTES:
                raise BufdbError(
                    f"{file} unpacks to more than {MOST_BYTES >> 20} MiB; unpack the archive first "
                    "if it can be trusted"
                )
            with open_file(file) as opened:
                data = unpacked(opened.read() or b"")
            if pprof.begins(data):
                raise BufdbError(f"{file}: it is of memory and no times: bufdb ingest reads it")
            profile = xplane.read(data)
        except UnreadableProto as error:
            raise BufdbError(f"{file}: {error}; profile again") from error
        except OSError as error:
            raise BufdbError(f"{file} cannot be read: {error.strerror}") from error
        whole.add(profile, f"{number}/" if len(files) > 1 else "")
    if not whole.times:
        raise BufdbError(
            f"{path} times no instruction of a compiled program"
            + "".join(f"; {text}" for text in hidden(whole))
        )
    return whole


def hidden(profile: Profile) -> Iterator[str]:
    """Yield a text for each device with events that name no instruction."""
    for device, unnamed in sorted(profile.unnamed.items()):
        text = (
            f"{unnamed.count} events of {device} ({unnamed.total_ps / 1e9:.3f} ms) name no "
            "instruction"
        )
        if "GPU" in device:
            text += f": copies, and what command buffers hide; {NO_GRAPHS} switches these off"
        yield text
