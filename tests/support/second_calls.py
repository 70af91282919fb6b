"""Op and frame of what JAX lowers once for all its calls, line by line: for the second reader."""

import re

Path = tuple[int, str] | None
"""Frame and op_name of a call, with what is within it; None for a way without a frame."""
NAME = r"%?([\w.\-]+)"
ROLES = "to_apply|calls|body|condition|branch_computations|true_computation|false_computation"
CALLED = rf", ({ROLES})=(\{{[^}}]*\}}|%?[\w.\-]+)"


class Lines:
    """The lines of a text by computation, and what each of them says."""

    def __init__(self, text: str) -> None:
        self.of: dict[str, list[dict]] = {}
        self.entries: set[str] = set()
        above = current = ""
        for line in ["", *text.split("\n")]:
            if not above and (head := re.match(rf"(ENTRY )?{NAME} [({{]", line)):
                current = head[2]
                self.of[current] = []
                self.entries |= {current} if head[1] else set()
            elif current and (match := re.match(rf"  (?:ROOT )?{NAME} = (.*)", line)):
                self.of[current].append(operation(match[1], match[2], current))
            above = line


def operation(name: str, text: str, home: str) -> dict:
    metadata = re.search(r', metadata=\{((?:[^}"]|"(?:[^"\\]|\\.)*")*)\}', text)
    metadata = metadata[1] if metadata else ""
    plain = re.sub(r'"(?:[^"\\]|\\.)*"', "", text)
    op_name = re.search(r'op_name="((?:[^"\\]|\\.)*)"', metadata)
    frame = re.search(r"stack_frame_id=(\d+)$", metadata)
    return {
        "name": name,
        "home": home,
        "op": re.sub(r"\\(.)", r"\1", op_name[1]) if op_name else "",
        "is_bare": bool(re.fullmatch(r'op_name="[^"/]+"', metadata)),
        "frame": int(frame[1]) if frame else 0,
        "has_source": bool(frame) or "source_file=" in metadata,
        "opcode": re.search(r"([\w\-]+)\(", plain.partition(" ")[2] or plain)[1]
        if "(" in plain
        else "",
        "is_fusion": " fusion(" in plain,
        "is_caller": bool(re.search(r" (while|call|conditional|[\w\-]+-start)\(", plain)),
        "calls": {role: re.findall(NAME, names) for role, names in re.findall(CALLED, plain)},
    }


def call_ops(before: str, after: str, known: set[int]) -> dict[str, tuple[int | None, str | None]]:
    """Return frame and op_name of instructions of the optimized text, by name."""
    old_lines, made = Lines(before), Lines(after)
    callers: dict[str, list[dict]] = {}
    homes: dict[str, set[str]] = {}
    for line in (line for lines in old_lines.of.values() for line in lines):
        for name in (name for names in line["calls"].values() for name in names):
            callers.setdefault(name, []).append(line)
        if line["is_bare"]:
            homes.setdefault(line["op"], set()).add(line["home"])

    def paths(home: str, trail: tuple[str, ...] = ()) -> set[Path]:
        if home in old_lines.entries or home in trail or not callers.get(home):
            return {None}
        call_paths: set[Path] = set()
        for line in callers[home]:
            if line["frame"]:
                call_paths.add((line["frame"], line["op"]))
            else:
                above = paths(line["home"], (*trail, home))
                call_paths |= {
                    one and (one[0], f"{one[1]}/{line['op']}".rstrip("/")) for one in above
                }
        return call_paths

    def agreed(call_paths: set[Path], op: str = "") -> tuple[int | None, str | None] | None:
        if any(one is None or one[0] not in known for one in call_paths):
            return None
        frames = {one[0] for one in call_paths}
        ops = {
            one[1] if f"/{one[1]}".endswith(f"/{op}") else f"{one[1]}/{op}" for one in call_paths
        }
        if len(frames) > 1:
            return None, None
        return frames.pop(), ops.pop().strip("/") if len(ops) == 1 else None

    every = [line for lines in made.of.values() for line in lines]
    entered = {
        name
        for line in every
        if line["is_caller"]
        for names in line["calls"].values()
        for name in names
    } | made.entries
    executes: dict[str, dict] = {}
    for line in every:
        for name in line["calls"].get("calls", ()) if line["is_fusion"] else ():
            executes.setdefault(name, line)
    by_name, fusions = {}, {}
    for line in every:
        own = None
        for name in line["calls"].get("to_apply", ()):
            own = own or agreed(paths(re.sub(r"(\.clone(\.\d+)?)+$", "", name)))
        if own is None and line["op"] in homes:
            ways = set().union(*map(paths, homes[line["op"]]))
            own = agreed(ways, line["op"])
        if own is None or line["has_source"]:
            continue
        by_name[line["name"]] = own
        at = line
        while at and at["home"] not in entered:
            at = executes.get(at["home"])
        if at and at is not line and not at["has_source"]:
            fusions[at["name"]] = at
    for name, fusion in fusions.items():
        inside = {
            by_name.get(line["name"], (line["frame"] or None, line["op"] or None))
            for line in made.of[fusion["calls"]["calls"][0]]
            if line["opcode"] != "parameter"
            and (line["name"] in by_name or line["op"] or line["frame"])
        }
        frames, ops = {one[0] for one in inside}, {one[1] for one in inside}
        if len(frames) == 1 and None not in frames:
            by_name[name] = frames.pop(), ops.pop() if len(ops) == 1 else None
    return by_name
