"""From sections to tables: the order of the steps.

Takes the sections of one batch (many small modules, or one large one in several rounds) through the
readers and emits the rows of every table as columns. `module` in them is the module's ordinal in
the batch. Each step uses what the steps above it found; none changes that. Memory use is set by the
names of the largest module.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bufdb.columnar.scan import Columns, take
from bufdb.read.hlo_graph import HloGraph
from bufdb.read.shape import Shape
from bufdb.rows import executions, instruction_costs, kernels
from bufdb.rows.agreement import EntryShapes
from bufdb.rows.attribution import Attribution, Users
from bufdb.rows.context import Context, Emit, ModuleFacts, Source
from bufdb.rows.costs import Costs
from bufdb.rows.instructions import Instructions
from bufdb.rows.lifetimes import Lifetimes
from bufdb.rows.loop_origins import Origins
from bufdb.rows.messages import add_messages
from bufdb.rows.peak_checks import MemoryChecks, checked_sums
from bufdb.rows.peak_savings import Grouping, PeakSavings
from bufdb.rows.placements import (
    Shapes,
    add_unassigned,
    look_for_descriptions,
    read_allocations,
    read_used_values,
)
from bufdb.rows.residuals import Residuals, makers_of
from bufdb.rows.value_index import ValueIndex


def _read_values(context: Context, values: ValueIndex, shapes: Shapes) -> Columns:
    """Index a batch's values, to be found from here on, and return its allocations."""
    table = read_allocations(context, values, shapes)
    add_unassigned(context, values)
    values.finish()
    context.find_in_each(
        values.duplicates(),
        "error",
        "duplicate_value",
        "{count} values repeat a name or number",
    )
    return table


def _walk_hlo(context: Context, values: ValueIndex, origins: Origins, costs: Costs) -> Residuals:
    """Find where loop data is made, costs of large values, and residuals in the HLO text."""
    source = context.source
    residuals = Residuals()
    for pieces in source.hlo():
        for piece in pieces:
            has_costs = instruction_costs.has_costs(piece.text)
            has_executions = executions.has_rows(piece.text)
            companions = source.kernels.get(piece.module)
            has_kernels = kernels.has_rows(piece.text, companions)
            is_large = piece.module in origins.places or costs.has_values[piece.module]
            if is_large or has_costs or has_executions or has_kernels:
                calls = context.source.call_ops.get(piece.module, {})
                metadata = {name: one.metadata for name, one in calls.items()}
                graph = HloGraph(piece.text, origins.loops.get(piece.module, []), metadata)
                if has_costs:
                    rows = instruction_costs.columns_of(graph)
                    _emit(context, "instruction_costs", piece.module, rows)
                if has_executions:
                    rows = executions.columns_of(graph)
                    _emit(context, "instruction_executions", piece.module, rows)
                if has_kernels:
                    rows = kernels.columns_of(graph, companions)
                    _emit(context, "kernels", piece.module, rows)
                origins_of_module = origins.add_module(values, piece.module, graph)
                costs.add_module(piece.module, graph, origins_of_module)
                places = origins.places.get(piece.module)
                parts = residuals.add_module(graph, places, origins_of_module)
                _emit(context, "recompute_parts", piece.module, parts)
    return residuals


def _emit(context: Context, table: str, module: int, columns: Columns) -> None:
    """Give rows of one module on, if there are any."""
    if columns:
        count = len(next(iter(columns.values())))
        context.emit(table, {**columns, "module": np.full(count, module)})


@dataclass
class Assembled:
    """The outcome of a batch."""

    facts: list[ModuleFacts]
    shapes: list[Shape]
    """Shapes met for the first time."""


def assemble(source: Source, emit: Emit, known_shapes: dict[bytes, Shape]) -> Assembled:
    """Read a batch and give the rows of its tables to `emit`, table by table and round by round.

    Args:
        source: the batch.
        emit: takes a table's name and columns.
        known_shapes: every shape met so far, by its text; new ones are added.
    """
    context, values, shapes = Context(source, emit), ValueIndex(), Shapes(known_shapes)
    origins = Origins(context)
    entries = EntryShapes(context)
    context.observers += [origins, entries]
    table = _read_values(context, values, shapes)
    for module in entries.others():
        source.leave_out_hlo(module)
        origins.leave_out(module)
    entries.add_signatures()
    look_for_descriptions(context)
    lifetimes = Lifetimes(context, values)
    lifetimes.read()
    checks = MemoryChecks(context, table, values, lifetimes)
    checks.check()
    live, sums = checks.live(), checks.sums()
    origins.find_sharers(values, lifetimes)
    occupied, temps = live.occupied(context, lifetimes)
    savings = PeakSavings(context, values.value_id, temps)
    instructions = Instructions(context, values, lifetimes)
    users = Users(context, values)
    costs = Costs(context, values, savings.large_rows())
    attribution = Attribution(context, values)
    context.observers += [users, savings, attribution, costs]
    read_used_values(context, values, instructions)
    instructions.add_undescribed()
    instructions.check_frames()
    origins.begin(values, lifetimes)
    residuals = _walk_hlo(context, values, origins, costs)
    emit("memory_sums", checked_sums(context, sums))
    is_known = context.having("is_peak_known")
    for name, columns in occupied.items():
        occupied[name] = take(columns, is_known[columns["module"]])
        emit(name, occupied[name])
    known = savings.row[is_known[values.module[savings.row]]]
    for columns in users.rows(known, occupied["peak_values"], lifetimes):
        emit("value_users", columns)
    emit("recompute_costs", costs.columns(is_known))
    makers = makers_of(values, costs, residuals)
    if makers:
        emit("recompute_instructions", take(makers, is_known[makers["module"]]))
    labels, is_backward = attribution.of_values(savings.row, origins.attributed, users, lifetimes)
    # Each of them knows the context, which makes a cycle: ingest has no collector to end it.
    context.observers.clear()
    # Or a module of a gigabyte takes a quarter more.
    del table, live, temps, occupied, values, lifetimes, users, costs, origins, attribution
    groupings = [Grouping(what, *label) for what, label in labels.items()]
    for columns in savings.rows(groupings, residuals, is_backward):
        emit("peak_savings", columns)
    if source.messages:
        add_messages(context, shapes)
    return Assembled(context.facts, shapes.new)
