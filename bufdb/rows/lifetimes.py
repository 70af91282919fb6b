"""When values live: program order, live ranges, and the peak as XLA prints it."""

from __future__ import annotations

import numpy as np

from bufdb.columnar.scan import Bools, Columns, Ints, Numbers, Words, take
from bufdb.columnar.sets import distinct
from bufdb.memory.ranges import parts
from bufdb.read.live_ranges import Facts
from bufdb.rows.context import Context, live_range_rounds
from bufdb.rows.value_index import ValueIndex, isin, lookup, places_of


class Lifetimes:
    """First and last live instant of each value, by its row in the index."""

    def __init__(self, context: Context, values: ValueIndex) -> None:
        """Start with no value alive; `read` fills it in."""
        self.context, self.values = context, values
        count = len(values)
        self.start: Ints = np.zeros(count, np.int64)
        self.end: Ints = np.full(count, -1)
        """The last live instant, itself included."""
        self.is_live = np.zeros(count, np.bool_)
        """Whether a value has a live range."""
        self.order: Ints = np.full(len(values.names), -1)
        """Place in the schedule of each name that defines a value, -1 without one."""
        self._scheduled: Words = np.empty(0, np.uint64)
        """Other names in the schedule, ascending."""
        self._orders: Ints = np.empty(0, np.int64)
        self._modules: Ints = np.empty(0, np.int64)
        self._range_counts = np.zeros(context.count, np.int64)
        self._unassigned: list[Ints] = []
        """(module, start, end) of live ranges whose value has no allocation."""

    def program_order(self, name_keys: Words) -> Numbers:
        """Return the place in the schedule of the instructions of these names."""
        return self.order_of(places_of(self.values.names, name_keys), name_keys)

    def order_of(self, name: Ints, name_keys: Words) -> Numbers:
        """Return the same, given which of the index's names they are, -1 for none of them."""
        order = np.full(len(name), -1)
        order[name >= 0] = self.order[name[name >= 0]]
        order[name < 0] = lookup(self._scheduled, self._orders, name_keys[name < 0])
        return Numbers(np.maximum(order, 0), order >= 0)

    def is_scheduled(self, name_keys: Words) -> Bools:
        """Return whether the instructions of these names are in the schedule."""
        is_scheduled = self.program_order(name_keys).valid
        assert is_scheduled is not None
        return is_scheduled

    def modules_lacking(self, known: Words) -> Ints:
        """Return the modules of steps that define no value and are not among the sorted names."""
        return distinct(self._modules[~isin(self._scheduled, known)])

    def names_lacking(self, known: Words) -> Words:
        """Return the names of these steps."""
        return self._scheduled[~isin(self._scheduled, known)]

    @property
    def has_schedule(self) -> bool:
        """Whether any module of the batch has a schedule."""
        return len(self._scheduled) > 0 or bool((self.order >= 0).any())

    def read(self) -> None:
        """Emit `live_ranges`, `peak_stack_nodes`, `peak_contributors`, and check them."""
        context = self.context
        names_of, orders, modules, peaks = [], [], [], []
        only_names = context.having("has_descriptions") & ~context.has_hlo()
        tree_bytes: dict[int, int] = {}
        steps = np.zeros(context.count, np.int64)
        for section, ranges in live_range_rounds(context, context.account):
            section.close()
            self._keep_facts(ranges.facts, ranges.unread)
            names = context.name_keys(ranges.sequence)
            steps += np.bincount(ranges.sequence["module"], minlength=context.count)
            other = self._order(names, ranges.sequence["program_order"])
            names_of.append(names[other])
            orders.append(ranges.sequence["program_order"][other])
            modules.append(ranges.sequence["module"][other])
            without_value = other & only_names[ranges.sequence["module"]]
            if without_value.any():  # rows of the others come with their description
                context.emit("instructions", take(ranges.sequence, without_value))
            self._ranges(ranges.ranges)
            if len(ranges.peak["module"]):  # otherwise all texts would be kept to the end
                peaks.append(ranges.peak)
            self._tree(ranges.tree, tree_bytes)
        self._peaks(peaks)
        self._check(tree_bytes, steps)
        if names_of:
            keys, values = np.concatenate(names_of), np.concatenate(orders)
            rank = np.argsort(keys, kind="stable")
            self._scheduled, self._orders = keys[rank], values[rank]
            self._modules = np.concatenate(modules)[rank]

    def _order(self, names: Words, program_order: Ints) -> Bools:
        """Keep the places of names that define values, the first of each; return which do not."""
        name = places_of(self.values.names, names)
        # The last write stays.
        defining = np.flatnonzero(name >= 0)[::-1]
        defining = defining[self.order[name[defining]] < 0]
        self.order[name[defining]] = program_order[defining]
        other: Bools = name < 0
        return other

    def _keep_facts(self, facts_of: dict[int, Facts], unread: list[int]) -> None:
        for module, live in facts_of.items():
            facts = self.context.facts[module]
            for name, value in vars(live).items():
                if value is not None:
                    setattr(facts.live, name, value)
            if live.schedule_length is not None:
                facts.has_live_ranges = True
        for module in unread:
            self.context.facts[module].has_unread_live_ranges = True

    def _ranges(self, ranges: Columns) -> None:
        rows = self.values.by_name(self.context.index_keys(ranges))
        has_value = rows >= 0
        counts = np.bincount(ranges["module"][has_value], minlength=self.context.count)
        self._range_counts += counts
        self.start[rows[has_value]] = ranges["start_time"][has_value]
        self.end[rows[has_value]] = ranges["end_time"][has_value]
        self.is_live[rows[has_value]] = True
        if not has_value.all():
            others = take(ranges, ~has_value)
            self._unassigned.append(
                np.stack([others["module"], others["start_time"], others["end_time"]], axis=1)
            )
        self.context.emit("live_ranges", {**ranges, "value_id": self.value_ids(rows)})

    def value_ids(self, rows: Ints) -> Numbers:
        """Return the numbers of the values in these rows of the index; unknown for row -1."""
        has_value = rows >= 0
        value_id = np.zeros(len(rows), np.int64)
        value_id[has_value] = self.values.value_id[rows[has_value]]
        return Numbers(value_id, has_value)

    def _tree(self, tree: Columns, tree_bytes: dict[int, int]) -> None:
        """Emit nodes of the trees, and add up their bytes by module."""
        modules, first = np.unique(tree["module"], return_index=True)
        bounds = [*first.tolist(), len(tree["module"])]
        for number, module in enumerate(modules.tolist()):
            sizes = tree["current_bytes"][bounds[number] : bounds[number + 1]]
            tree_bytes[module] = tree_bytes.get(module, 0) + sum(sizes.tolist())
        self.context.emit("peak_stack_nodes", tree)

    def _check(self, tree_bytes: dict[int, int], steps: Ints) -> None:
        """Check titles against what is below them, and that each value has one live range."""
        find = self.context.find
        for module, total in tree_bytes.items():
            title = self.context.facts[module].live.tree_bytes
            if title is not None and total != title:
                message = f"the nodes of the peak's tree hold {total} bytes, its title says {title}"
                find(module, "error", "peak_tree_mismatch", message)
        for module, facts in enumerate(self.context.facts):
            length = facts.live.schedule_length
            if length is not None and length != steps[module]:
                message = f"the schedule has {steps[module]} steps, its title says {length}"
                find(module, "error", "schedule_mismatch", message)
        live_modules = self.values.module[self.is_live]
        surplus = self._range_counts - np.bincount(live_modules, minlength=self.context.count)
        for module in np.flatnonzero(surplus > 0).tolist():
            message = f"{surplus[module]} live ranges are of values that have another one"
            find(module, "error", "duplicate_live_range", message)

    def _peaks(self, listings: list[Columns]) -> None:
        """Emit printed contributors: by name and index, or in the oldest form by their order.

        Args:
            listings: the lines of the listings of all files, sorted by module in each.
        """
        context = self.context
        none = np.empty(0, np.uint64)  # an empty listing is checked, too
        names = np.concatenate([none, *(context.name_keys(part) for part in listings)])
        keys = np.concatenate([none, *(context.index_keys(part) for part in listings)])
        rows = self.values.by_name(keys)
        valid = [part["shape_index"].valid for part in listings]
        has_index = np.concatenate([np.empty(0, np.bool_), *valid])
        rows[~has_index] = -1
        modules = np.concatenate([np.empty(0, np.int64), *(part["module"] for part in listings)])
        self._hold_peaks(modules, rows, names, has_index)
        sizes = [part["logical_bytes"] for part in listings]
        self._check_sizes(modules, np.where(has_index, rows, -1), sizes)
        at = 0
        for part in listings:
            count = len(part["module"])
            value_ids = self.value_ids(rows[at : at + count])
            at += count
            context.emit("peak_contributors", {**part, "value_id": value_ids})

    def _check_sizes(self, modules: Ints, rows: Ints, sizes: list[Ints]) -> None:
        """Check the sizes in listings against the shapes of the values.

        Args:
            modules: of the listings' lines.
            rows: rows of their values, -1 where there is none, or the size is not that of a value.
            sizes: bytes of their shapes.
        """
        there = np.flatnonzero(rows >= 0)
        modules, rows = modules[there], rows[there]
        printed = np.concatenate([np.empty(0, np.int64), *sizes])[there]
        known = self.values.logical_bytes[rows]
        del self.values.logical_bytes  # which nothing else needs
        odd = np.flatnonzero((known >= 0) & (printed != known))
        odd_modules, first, counts = np.unique(modules[odd], return_index=True, return_counts=True)
        for module, at, count in zip(
            odd_modules.tolist(), odd[first].tolist(), counts, strict=True
        ):
            message = (
                f"the peak listing has {printed[at]} bytes for value "
                f"{self.values.value_id[rows[at]]}, whose shape has {known[at]}"
            )
            message += f", and {count - 1} more of another size" if count > 1 else ""
            self.context.find(module, "error", "peak_size_mismatch", message)

    def _hold_peaks(self, modules: Ints, rows: Ints, names: Words, has_index: Bools) -> None:
        """Check the listings against the live ranges of all modules; fill in rows without indexes.

        Args:
            modules: of the listings' lines.
            rows: rows of their values, -1 where there is none.
            names: of their instructions.
            has_index: whether a line has an index; if none of a module's has, its values are those
                that live, in their order.
        """
        count = self.context.count
        times = [facts.live.peak_time for facts in self.context.facts]
        time = np.array([time or 0 for time in times], np.int64)
        has_peak = np.array([time is not None for time in times], np.bool_)
        lines, is_live = np.bincount(modules, minlength=count), self._living(time, has_peak)
        listed = np.flatnonzero(is_live)
        living = np.bincount(self.values.module[listed], minlength=count)
        is_old = has_peak & (np.bincount(modules[has_index], minlength=count) == 0)
        if is_old[modules].any():
            old = np.argsort(modules, kind="stable")
            old = old[is_old[modules[old]]]
            owner = modules[old]
            place = np.arange(len(old)) - (np.cumsum(lines * is_old) - lines * is_old)[owner]
            old, owner, place = (column[place < living[owner]] for column in (old, owner, place))
            listed_rows = listed[(np.cumsum(living) - living)[owner] + place]
            rows[old] = np.where(self.values.name_keys(listed_rows) == names[old], listed_rows, -1)
        named = np.zeros(len(is_live), np.bool_)
        named[rows[(rows >= 0) & has_peak[modules]]] = True
        others = np.zeros(count, np.int64)
        for module, start, end in (lone.T for lone in self._unassigned):
            is_there = has_peak[module] & (start <= time[module]) & (time[module] <= end)
            others += np.bincount(module[is_there], minlength=count)
        differs = lines != living + others
        differs[self.values.module[named != is_live]] = True
        for number in np.flatnonzero(differs & has_peak).tolist():
            message = (
                f"the peak listing at {times[number]} names {lines[number]} values, the live "
                f"ranges {living[number] + others[number]}, and they differ"
            )
            self.context.find(number, "error", "peak_listing_mismatch", message)

    def _living(self, time: Ints, has_time: Bools) -> Bools:
        """Return which values live at their module's instant, if it has one."""
        is_living = self.is_live.copy()
        for part in parts(len(is_living)):
            module = self.values.module[part]
            at = time[module]
            is_living[part] &= has_time[module] & (self.start[part] <= at) & (at <= self.end[part])
        return is_living
