"""What messages in a log say about memory, as sentences: figures, and what to do next."""

from __future__ import annotations

from bufdb.read.amount import Amount
from bufdb.read.message import Message


def _size(amount: Amount) -> str:
    """Format a size as the message does: 33.05G is 33.05 GiB."""
    size, unit = float(amount.size_bytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{size:.2f} {unit}" if unit != "B" else f"{amount.size_bytes} B"


def why_at_least(message: Message) -> str:
    """Return why the peak may be higher than the message's figures."""
    why = "the message does not say what arguments and outputs take"
    if message.form in ("array", "early", "tile"):
        why = "the message has the failed request, not the program's total"
    if message.form == "kernel":
        why = "the compiler stops at the first array of the kernel that does not fit"
    return f"{why}; the peak is at least this"


def has_compiled(message: Message) -> bool:
    """Return whether the sums are those of a program that did not fail."""
    titles = {title for one in (message, *message.more) for title in one.parts}
    return bool(titles & {"module", "use", "statistics", "sizes"})


def is_exact(message: Message) -> bool:
    """Return whether a message has sums in bytes."""
    return message.form in _EXACT or "statistics" in message.parts


def figures_of(message: Message, total: Amount | None) -> str:
    """Return what is needed, available and missing; '' if the message does not say.

    Args:
        message: the whole.
        total: its total with outputs that are in no argument's memory.
    """
    if total is None or message.form not in _COMPILED:
        return _figures(message)
    spaces = [text for one in message.more if (text := _of_space(one))]
    first = _of_statistics(message, total)
    if message.form == "summary":
        first = _of_summary(message, total) if message.space == "hbm" else _of_space(message)
    return "; ".join([first, *spaces])


def _of_summary(message: Message, total: Amount) -> str:
    text, limit = f"{_size(total)} needed", message.limit
    reserved = message.amounts.get("reserved", Amount(0, 0))
    if limit is None:
        return text
    if reserved.size_bytes:
        text += f" ({_size(reserved)} of it the runtime's, outside what is available)"
    over = total.size_bytes - reserved.size_bytes - limit.size_bytes
    slack = total.slack_bytes + limit.slack_bytes
    fits = "it fits" if over <= slack else f"{_size(Amount(over, 0))} too much"
    return f"{text}, {_size(limit)} of {message.space} available: {fits}"


def _of_statistics(message: Message, total: Amount) -> str:
    names = {"argument": "arguments", "output": "outputs", "temp": "temporaries"}
    named = {text: message.amounts.get(name) for name, text in names.items()}
    parts = [f"{text} {_size(amount)}" for text, amount in named.items() if amount is not None]
    shared = message.amounts.get("alias")
    if shared is not None and shared.size_bytes:
        parts.append(f"less {_size(shared)} of outputs in the memory of arguments")
    return ", ".join([f"{_size(total)} needed: {parts[0]}", *parts[1:]]) if parts else _size(total)


def _of_space(message: Message) -> str:
    """Return what is used of another memory space; '' if nothing is."""
    size = message.total or message.amounts.get("temp")
    if size is None or not size.size_bytes:
        return ""
    of = f" of {_size(message.limit)}" if message.limit is not None else ""
    what = " of temporaries" if message.total is None else ""
    return f"{message.space} {_size(size)}{of}{what}"


def _figures(message: Message) -> str:
    """Return what is needed, available and missing; '' if the message does not say."""
    needed, limit = message.needed or message.total, message.limit
    if needed is None:
        return ""
    if not message.is_tpu and message.form != "block":
        return f"an allocation of {_size(needed)} failed" if message.needed else ""
    if limit is None:
        return f"{_size(needed)} needed{_by_whom(message)}"
    over = message.excess or Amount(max(0, needed.size_bytes - limit.size_bytes), 0)
    text = f"{_size(needed)} needed{_by_whom(message)}, {_size(limit)} "
    if message.form in ("program", "array"):
        text += f"free: {_size(over)} too much (other arrays and programs hold the rest)"
    else:
        text += f"of {_SPACES.get(message.space, message.space)} available: {_size(over)} too much"
    if message.form == "cores":
        tensor, sparse = (_size(message.amounts[core]) for core in ("tensor", "sparse"))
        text += f" ({tensor} of the TensorCore, {sparse} of the SparseCores)"
    if "held" in message.amounts:
        text += f"; other arrays hold {_size(message.amounts['held'])}"
    return text


_OF_ONE = ("kernel", "operand", "tile", "block")
"""Forms about the scratch memory of one instruction or kernel."""
_EXACT = ("operand", "tile", "block")
"""Forms that say bytes or words."""
_COMPILED = ("summary", "statistics")
_SPACES = {"shared": "shared memory", "tensor": "tensor memory", "tile_spmem": "tile spmem"}
"""Names of memory spaces for sentences, where they differ from those of the column."""


def _by_whom(message: Message) -> str:
    """Return the instruction whose scratch memory it is."""
    if message.form not in _OF_ONE or not message.buffers or message.buffers[0].name is None:
        return ""
    buffer = message.buffers[0]
    parts = [buffer.opcode, None if buffer.result is None else buffer.result.partition("{")[0]]
    own = {name: buffer.metadata.get(name) for name in ("op_name", "source_file")}
    parts += [text.decode(errors="replace") for text in own.values() if isinstance(text, bytes)]
    if own["source_file"] and buffer.metadata.get("source_line"):
        parts[-1] = f"{parts[-1]}:{buffer.metadata['source_line']}"
    known = ", ".join(filter(None, parts))
    return f" by %{buffer.name}" + (f" ({known})" if known else "")


def hint(message: Message) -> str:
    """Return what to do next, by what the message is about."""
    if message.form == "summary" and not has_compiled(message):
        return _SUMS_ALONE
    if message.form == "list" and message.buffers:
        return _LISTED if message.space == "hbm" else _LISTED_SCRATCH
    return _HINTS.get(message.form, _NOT_LISTED)


_DUMP = "XLA_FLAGS=--xla_dump_to=DIR"
_LISTED = "queries peak, peak-by-source-line and padding show what the message lists"
_LISTED_SCRATCH = (
    f"{_LISTED}; this memory is scratch space of single instructions: smaller blocks in a kernel, "
    "or other shapes, need less of it"
)
_SUMS_ALONE = (
    "the log has a program's sums but not whether it ran out of memory, as in logs of "
    "compilations that succeed"
)
_NOT_LISTED = (
    "the message has no list of buffers; XLA dumps a module before it gives up: run with "
    f"{_DUMP} and ingest DIR"
)
_HINTS = {
    "summary": (
        "the program compiled: nothing ran out of memory. A log has sums alone; run with "
        f"{_DUMP} and ingest DIR for what holds them"
    ),
    "statistics": (
        "XLA's sums of a program that compiled: nothing ran out of memory. Run with "
        f"{_DUMP} and ingest DIR for what holds them"
    ),
    "tile": (
        "a SparseCore's memory is too small for its program's data: use smaller blocks or windows "
        "in a kernel, or narrower embeddings"
    ),
    "block": (
        "a block of one GPU kernel needs more memory than its processor has: in your kernel use "
        "smaller blocks or fewer stages (block sizes, num_stages); for XLA's own Triton fusions "
        "--xla_gpu_enable_triton_gemm=false chooses others"
    ),
    "kernel": (
        "one instruction's scratch memory is too large: in a kernel use smaller or fewer blocks, "
        "or raise the limit (vmem_limit_bytes of its compiler parameters, which bufdb fit "
        "--also vmem finds, or --xla_tpu_scoped_vmem_limit_kib)"
    ),
    "operand": (
        "one array of a kernel's scratch memory is larger than the memory: make the array, or its "
        "block, smaller"
    ),
    "temporaries": (
        "temporaries alone exceed the device's memory; XLA dumped this module before it gave up: "
        f"run with {_DUMP} and ingest DIR"
    ),
    "cores": (
        "TensorCore and SparseCores share this memory; if the SparseCores need more, use smaller "
        f"embedding tables or process fewer at a time. {_DUMP} dumps the module"
    ),
    "program": (
        "the program compiles, but other arrays and programs hold the device's memory when it is "
        f"loaded: free or donate arrays. {_DUMP} shows its need"
    ),
    "array": (
        "there was no room for an array or a program. A dump does not show what else the process "
        f"holds; {_DUMP} shows the need of the programs"
    ),
}
"""What to do next, by Message.form."""
