"""Writes a dump of one module with any number of values in one arena.

    python tests/support/one_arena.py FOLDER [--values 100000]

`make_inputs.py` of the benchmarks gives each replica an arena of its own, so that a picture of it
is a diagonal. Here the values have the lives of a training step: of the first half one in seven is
kept for its mirror image in the second, the others live for some steps; places are the lowest
free ones. Names, lines and stacks are those of 96 layers; the same numbers give the same bytes.
What XLA lists at its peak is left out, which ingest reports.
"""

import argparse
import heapq
import random
from bisect import insort
from collections import defaultdict
from pathlib import Path

LAYERS, LINES = 96, 40
STEM = "module_0001.jit_train_step.sm_9.0a_gpu_after_optimizations"
OPS = (
    "dot_general",
    "add",
    "tanh",
    "reduce_sum",
    "transpose",
    "mul",
    "convert_element_type",
    "exp",
)
ALIGNMENT = 1024
PARAMETER_BYTES, OUTPUT_BYTES = 64 << 20, 512


def lives(count, seed=1):
    """First and last instant and size of each value, in order of their beginning."""
    rng = random.Random(seed)
    half = count // 2
    for start in range(count):
        size = ALIGNMENT * (1 << rng.randrange(8))
        if start < half and rng.random() < 0.14:
            yield start, min(count, count - start + rng.randrange(40)), size * 4
        else:
            yield start, min(count, start + 1 + int(rng.expovariate(1 / 10))), size


def places(values):
    """The lowest free offset of each, and the size of the arena."""
    free, top, ending, offsets = [], 0, [], []
    for start, end, size in values:
        while ending and ending[0][0] < start:
            _, at, length = heapq.heappop(ending)
            insort(free, (at, length))
        place = next((place for place, (_, length) in enumerate(free) if length >= size), None)
        if place is None:
            at, top = top, top + size
        else:
            at, length = free.pop(place)
            if length > size:
                insort(free, (at + size, length - size))
        heapq.heappush(ending, (end, at, size))
        offsets.append(at)
        if start % 64 == 0:  # neighbors become one
            merged = []
            for at, length in free:
                if merged and sum(merged[-1]) == at:
                    merged[-1] = (merged[-1][0], merged[-1][1] + length)
                else:
                    merged.append((at, length))
            free = merged
    return offsets, top


def write(folder, count=100_000):
    """The four files of the dump."""
    values = list(lives(count))
    offsets, arena = places(values)
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"{OPS[number % len(OPS)]}_fusion.{number}" for number in range(count)]

    def shape(size):
        return f"bf16[{size // 512},256]{{1,0}}"

    half = count // 2

    kept_until = defaultdict(list)
    for number, (_, end, _) in enumerate(values):
        if number + 1 < end < count:
            kept_until[end].append(number)

    def instruction(number):
        layer = min(number, count - 1 - number) * LAYERS // max(half, 1)
        side = "jvp" if number < half else "transpose(jvp)"
        op = OPS[number % len(OPS)]
        frame = 3 + layer * (LINES + 1) + 1 + number % LINES
        before = [names[number - 1] if number else "parameter.0"]
        operands = ", ".join(
            f"%{name}" for name in before + [names[at] for at in kept_until[number]]
        )
        return (
            f"%{names[number]} = {shape(values[number][2])} fusion({operands}), kind=kLoop, "
            f'metadata={{op_name="jit(train_step)/{side}(layer_{layer})/{op}" '
            f"stack_frame_id={frame}}}"
        )

    total = arena + PARAMETER_BYTES + OUTPUT_BYTES
    assignment = [
        "BufferAssignment:",
        f"allocation 0: size {PARAMETER_BYTES}, parameter 0, shape |bf16[131072,256]| at "
        "ShapeIndex {}:",
        f" value: <0 parameter.0 @0> (size={PARAMETER_BYTES},offset=0): bf16[131072,256]{{1,0}}",
        f"allocation 1: size {arena}, preallocated-temp:",
    ]
    assignment += [
        f" value: <{number + 1} {names[number]} @0> (size={size},offset={offsets[number]}): "
        f"{shape(size)}"
        for number, (_, _, size) in enumerate(values)
    ]
    assignment.append(
        f"allocation 2: size {OUTPUT_BYTES}, output shape is |bf16[1,256]|, maybe-live-out:"
    )
    used = [f"Total bytes used: {total} ({total / 2**20:.2f}MiB)", "", "Used values:"]
    used += ["<0 parameter.0 @0>", " positions:", "  parameter.0", " uses:"]
    used += [f"  {names[0]}, operand 0"]
    used += [" from instruction: %parameter.0 = bf16[131072,256]{1,0} parameter(0), "
             'metadata={op_name="tokens"}']  # fmt: skip
    for number in range(count):
        used += [f"<{number + 1} {names[number]} @0>", " positions:", f"  {names[number]}"]
        users = [f"  {names[number + 1]}, operand 0"] if number + 1 < count else []
        end = values[number][1]
        if number in kept_until[end]:
            users.append(f"  {names[end]}, operand {kept_until[end].index(number) + 1}")
        used += [" uses:", *(users or ["  (none)"])]
        used += [f" from instruction: {instruction(number)}"]
    live = [f"HloLiveRange (max {count + 1}):", "  InstructionSequence:", "    0:parameter.0"]
    live += [f"    {number + 1}:{name}" for number, name in enumerate(names)]
    live += ["  BufferLiveRange:", f"    parameter.0{{}}:0-{count + 1}"]
    live += [
        f"    {name}{{}}:{start + 1}-{end + 1}"
        for name, (start, end, _) in zip(names, values, strict=True)
    ]
    for kind, lines in (
        ("-buffer-assignment", assignment),
        ("-buffer-assignment-values", ["", *used]),
        ("-live-range", live),
        ("", hlo(instruction, count)),
    ):
        text = "\n".join(lines) + "\n"
        (folder / f"{STEM}{kind}.txt").write_text(text, encoding="utf-8")


def hlo(instruction, count):
    """HLO text: the tables of stack frames, and the schedule."""
    lines = ["HloModule jit_train_step, is_scheduled=true", "", "FileNames"]
    lines += ['1 "/home/user/model/train.py"', '2 "/home/user/model/block.py"', "", "FunctionNames"]
    lines += ['1 "<module>"', '2 "train_step"', '3 "forward"']
    lines += [f'{4 + layer} "layer_{layer}"' for layer in range(LAYERS)]
    frames = [(1, 1, 90, 0), (1, 2, 77, 1), (1, 3, 31, 2)]
    for layer in range(LAYERS):
        frames.append((2, 4 + layer, 10 + layer % 3, 3))
        parent = len(frames)
        frames += [(2, 4 + layer, 100 + line, parent) for line in range(LINES)]
    lines += ["", "FileLocations"]
    for number, (file, function, line, _) in enumerate(frames, 1):
        lines.append(
            f"{number} {{file_name_id={file} function_name_id={function} line={line} "
            f"end_line={line} column=4 end_column=9}}"
        )
    lines += ["", "StackFrames"]
    for number, (*_, parent) in enumerate(frames, 1):
        # As XLA prints it, one too high; an outermost frame names itself.
        lines.append(
            f"{number} {{file_location_id={number} parent_frame_id={parent + 1 if parent else 1}}}"
        )
    lines += ["", "", "ENTRY %main (parameter.0: bf16[131072,256]) -> bf16[1,256] {"]
    lines += ["  %parameter.0 = bf16[131072,256]{1,0} parameter(0)"]
    lines += [f"  {instruction(number)}" for number in range(count)]
    return [*lines, "}"]


def main():
    parser = argparse.ArgumentParser(description="A dump of one module in one arena.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--values", type=int, default=100_000)
    options = parser.parse_args()
    write(options.folder, options.values)


if __name__ == "__main__":
    main()
