"""The report's page in headless Chromium: what it shows is what the database says.

Each test ends with a silent console and no request except the one for the file itself.
"""

import contextlib
import csv
import io
import re
import shlex
import shutil
from functools import partial

import browser as headless
import duckdb
import pytest
from once import one_at_a_time
from page_figures import KINDS, holds_most
from places import DEMO, ROOT

from bufdb.answers import summary, summary_text
from bufdb.database import store
from bufdb.render.text import human_bytes

MISSING = headless.missing()
pytestmark = pytest.mark.skipif(MISSING is not None, reason=MISSING or "")

MODULES = [("cpu_b8", "train_step"), ("gpu_b8", "train_step"), ("tpu_b8", "train_step")]
"""One module of each backend."""


@pytest.fixture(scope="module")
def window(tmp_path_factory):
    # Two that start at once may wait for each other without end.
    with one_at_a_time(tmp_path_factory, "browser"), headless.opened() as opened:
        yield opened


@pytest.fixture
def page(window):
    """The window at its usual size; quiet when the test is over."""
    window.resize(1280)
    yield window
    window.check_quiet()


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Cache reports by database and options: writing one takes longer than testing it."""
    return tmp_path_factory.mktemp("reports"), {}


@pytest.fixture
def report(call, written):
    """Write a report and return its path."""
    folder, known = written

    def write(db, *options):
        if (db, options) not in known:
            path = folder / f"report_{len(known)}.html"
            code, _, err = call("report", "--db", db, *options, "-o", path)
            assert code == 0, err
            known[db, options] = path
        return known[db, options]

    return write


@pytest.fixture
def demo(demo_db):
    with duckdb.connect(str(demo_db), read_only=True) as con:
        yield con


def figures_of(con, run, function):
    """Return figures of device memory by name, for a function's largest module."""
    cursor = con.execute(
        "SELECT memory_figures.*, modules.schedule_length FROM memory_figures "
        "JOIN modules USING (module_id) WHERE memory_figures.run_name = $1 "
        "AND memory_figures.function_name = $2 AND memory_figures.is_device_memory "
        "ORDER BY need_bytes DESC LIMIT 1",
        [run, function],
    )
    names = [column[0] for column in cursor.description]
    return dict(zip(names, cursor.fetchone(), strict=True))


def occupied(con, figures, step):
    """Bytes occupied at a step, fixed ones included."""
    (temps,) = con.execute(
        "SELECT coalesce(arg_max(occupied_temp_bytes, start_time), 0)::BIGINT FROM occupancy_steps "
        "WHERE module_id = $1 AND color = $2 AND start_time <= $3",
        [figures["module_id"], figures["color"], step],
    ).fetchone()
    return temps + figures["fixed_bytes"]


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text)))


def parts_of(page):
    """Return the parts of the bar by the page's accessible label."""
    label = page.run("return document.querySelector('#split').ariaLabel ?? ''")
    return dict(re.findall(r"(.+?) ([\d.]+ (?:[KMGT]i)?B)(?:, |$)", label))


def short(name):
    """A line with the last part of its path, as the page shows it where names differ."""
    return re.sub(r"\S*/", "", name)


def check_first_screen(page, overview):
    """Check the headline, the limit, what holds and what lowers the peak: those of a summary."""
    peak = overview.peak
    sections = {one.name: one for one in summary_text.sections(overview)}
    answer = page.text("#answer")
    assert answer.startswith(f"{human_bytes(peak['peak_bytes'])} at step ")
    first = sections["lines"].figures[0]
    assert f"Most is held by {short(first.name)}: {first.size}, {first.share}" in answer
    limit = [
        one.text
        for one in summary_text.sentences(overview, width=10_000)
        if one.name in ("limit", "device", "taken")
    ]
    shown = page.run(
        "return Array.from(document.querySelectorAll('#limit span'), e => e.innerText)"
    )
    assert [text for text in shown if text] == [text.strip() for text in limit]
    for name, section in sections.items():
        rows = page.rows(f"#{name}") if section.figures else []
        assert [row[1:3] for row in rows] == [[one.size, one.share] for one in section.figures]
        for row, one in zip(rows, section.figures, strict=True):
            assert all(low in row[0] and note in row[0] for low, note in one.notes)
            if name == "lines":
                assert row[4].startswith(one.saving)
    bar = parts_of(page)
    for one in sections["lines"].figures:
        # A part with other bytes under the same name would be a second figure of one thing.
        assert bar.get(short(one.name), one.size) == one.size


@pytest.mark.parametrize(
    ("run", "function", "limit"),
    [
        *((*module, None) for module in MODULES),
        (*MODULES[0], 16 << 20),
        *(pytest.param(*one, 16 << 20, marks=pytest.mark.by_hand) for one in MODULES[1:]),
    ],
)
def test_the_first_screen_is_the_summary(page, report, demo_db, run, function, limit):
    limits = [] if limit is None else ["--limit", str(limit)]
    page.open(report(demo_db, "--run", run, "--function", function, *limits))
    opened = partial(store.open_readable, str(demo_db))
    overview = summary.summary(opened, run=run, function=function, limit=limit).overview
    check_first_screen(page, overview)


def test_the_first_screen_names_what_holds_most(page, report, tmp_path):
    path = tmp_path / "kinds.duckdb"
    with contextlib.closing(store.open_writable(str(path))) as con:
        for number, kind in enumerate(KINDS):
            holds_most(con, number + 1, kind)
    page.open(report(path))
    for kind in KINDS:
        page.run(
            "Array.from(document.querySelectorAll('#modules tbody tr'))"
            ".find(row => row.cells[0].innerText === arguments[0]).click()",
            kind,
        )
        page.wait("document.querySelector('#title').innerText.startsWith(arguments[0])", kind)
        opened = partial(store.open_readable, str(path))
        check_first_screen(page, summary.summary(opened, run=kind).overview)


@pytest.mark.parametrize(("run", "function"), MODULES)
def test_every_picture_has_the_bytes_of_the_chosen_step(page, report, demo_db, demo, run, function):
    page.open(report(demo_db, "--run", run, "--function", function))
    figures = figures_of(demo, run, function)
    length = figures["schedule_length"]
    curve = rows_of(page.copy("#peaks-copy button"))
    assert len(curve) == length + 1
    steps = {figures["peak_time"], 0, length, *range(1, length, max(1, length // 10))}
    for step in sorted(steps):
        wanted = occupied(demo, figures, step)
        assert int(curve[step]["occupied_bytes"]) == wanted
        page.run(
            "location.hash = location.hash.replace(/&step=\\d+|$/, '&step=' + arguments[0])", step
        )
        page.wait(
            "document.querySelector('#instant-title').innerText.includes(arguments[0])",
            f" at step {step}",
        )
        live = rows_of(page.copy("#instant-copy button"))
        assert sum(int(row["held_bytes"]) for row in live) == wanted
        shown = human_bytes(wanted)
        assert page.text("#instant-title").endswith(f", {shown}")
        assert page.text("#flame-reading").startswith(f"all at step {step} · {shown}")
        assert f"step {step} of {length} · {shown} · " in page.text("#reading")


def test_a_table_copies_what_its_command_answers(page, report, demo_db, call):
    page.open(report(demo_db, "--run", "cpu_b8", "--function", "train_step"))
    names = page.run("return Array.from(document.querySelectorAll('.saved'), each => each.id)")
    assert {"table-advice", "table-loop-residuals", "table-peak-by-shape"} <= set(names)
    for name in names:
        page.click(f"#{name} > summary")
        page.wait("document.getElementById(arguments[0]).querySelector('table') !== null", name)
        copied = page.copy(f"#{name} .copy button")
        command = shlex.split(page.copy(f"#{name} .copy button:last-child"))
        assert command[0] == "bufdb"
        _, out, _ = call(*command[1:], "--db", demo_db, "--format", "csv")
        # A report holds no reasons why others are unknown: its query may say more.
        assert copied == out


def test_a_click_on_the_map_shows_the_block_there(page, report, demo_db, demo):
    page.open(report(demo_db, "--run", "cpu_b8", "--function", "train_step"))
    figures = figures_of(demo, "cpu_b8", "train_step")
    arena, name, start, end, offset, size, shape = demo.execute(
        "SELECT allocations.size_bytes, instruction_name, start_time, end_time, offset_bytes, "
        "values.size_bytes, shape FROM value_details AS values JOIN allocations "
        "USING (module_id, allocation_index) WHERE module_id = $1 "
        "AND instruction_name = 'maximum_bitcast_fusion' AND shape_index = '{}'",
        [figures["module_id"]],
    ).fetchone()
    width, height = page.run(
        "const map = document.querySelector('#map canvas');"
        "return [map.clientWidth, map.clientHeight]"
    )
    x = (start + end + 1) / 2 / (figures["schedule_length"] + 1) * width
    y = height - (offset + size / 2) / arena * height
    page.press_mouse("#map canvas", x, y)
    panel = page.text("#panel")
    assert panel.startswith(name)
    assert human_bytes(size) in panel
    assert shape in panel
    assert f"step {start} to step {end}" in panel
    assert "train.py:53" in panel
    assert f"block={name}" in page.run("return location.hash")
    assert f" at step {(start + end + 1) // 2}" in page.text("#instant-title")
    page.press("Escape")
    assert "Choose a block" in page.text("#panel")


def test_find_counts_what_a_text_is_in(page, report, demo_db, demo):
    page.open(report(demo_db, "--run", "cpu_b8", "--function", "train_step"))
    for wanted in ("maximum_bitcast", "[8,100,500]", "nothing like this", "f32[800,256]{1,0}"):
        page.press("/")
        assert page.run("return document.activeElement.id") == "find"
        page.run(
            "const find = document.querySelector('#find'); find.value = arguments[0];"
            "find.dispatchEvent(new Event('input'))",
            wanted,
        )
        page.wait("location.hash.includes('find=')")
        page.wait(
            "decodeURIComponent(location.hash.replaceAll('+', ' ')).includes(arguments[0])", wanted
        )
        rows = page.rows("#instant")
        hits = page.run("return document.querySelectorAll('#instant tr.hit').length")
        assert hits == sum(wanted in " ".join(row) for row in rows)
        count, size = re.match(
            r"([\d,]+) values? found, (.*) at this step", page.text("#hits")
        ).groups()
        live = rows_of(page.copy("#instant-copy button"))
        bytes_ = sum(int(row["held_bytes"]) for row in live if wanted in " ".join(row.values()))
        assert size == human_bytes(bytes_)
        assert (int(count) > 0) == (wanted != "nothing like this")
        page.press("Escape")
        assert page.text("#hits") == ""


def test_the_map_shows_what_is_found_and_pales_the_rest(page, report, demo_db):
    page.open(report(demo_db, "--run", "cpu_b8", "--function", "train_step"))
    colours = (
        "const map = document.querySelector('#map canvas');"
        "const copy = document.createElement('canvas');"
        "[copy.width, copy.height] = [map.width, map.height];"
        "const context = copy.getContext('2d', {willReadFrequently: true});"
        "context.drawImage(map, 0, 0);"
        "const data = context.getImageData(0, 0, map.width, map.height).data;"
        "const seen = new Set(); for (let i = 0; i < data.length; i += 4)"
        "seen.add((data[i] << 16 | data[i + 1] << 8 | data[i + 2]).toString(16).padStart(6, '0'));"
        "return [...seen]"
    )
    groups = {"3352fa", "e93f1b", "d9a325"}
    assert groups <= set(page.run(colours))
    page.run("document.querySelectorAll('#lines tbody tr')[1].click()")
    page.drawn()
    assert re.match(r"\d+ values? found", page.text("#hits"))
    assert "e93f1b" in page.run(colours)
    assert not {"3352fa", "d9a325"} & set(page.run(colours))


def test_keys_choose_instants_and_peaks(page, report, demo_db, demo):
    page.open(report(demo_db, "--run", "cpu_b8", "--function", "train_step"))
    figures = figures_of(demo, "cpu_b8", "train_step")
    peaks = sorted(
        step
        for (step,) in demo.execute(
            "SELECT peak_time FROM peaks WHERE module_id = $1 AND color = $2",
            [figures["module_id"], figures["color"]],
        ).fetchall()
    )
    peak = figures["peak_time"]

    def step():
        return int(re.search(r" at step (\d+)", page.text("#instant-title"))[1])

    assert step() == peak
    for key, shift, wanted in [
        ("ArrowRight", False, peak + 1),
        ("ArrowRight", True, peak + 11),
        ("ArrowLeft", True, peak + 1),
        ("ArrowLeft", False, peak),
        ("]", False, min(each for each in peaks if each > peak)),
        ("p", False, peak),
        ("[", False, max(each for each in peaks if each < peak)),
    ]:
        page.press(key, shift=shift)
        assert step() == wanted
    page.press("p", ctrl=True)
    assert step() != peak, "with Ctrl a key is the browser's"
    assert [row[0] for row in page.rows("#peaks")].count(str(peak)) == 1


def axis(page):
    """The first and the last step that the curve shows, by what the pointer reads at its ends."""
    width = page.run("return document.querySelector('#curve .u-over').clientWidth")
    ends = []
    for x in (1, width - 2):
        page.mouse("mouseMoved", "#curve .u-over", x, 20)
        ends.append(int(re.match(r"step (\d+)", page.text("#reading"))[1]))
    return ends


def test_zoom_by_key_by_wheel_and_by_selection(page, report, demo_db):
    page.open(report(demo_db, "--run", "cpu_b8", "--function", "train_step"))
    whole = axis(page)
    assert whole == [0, 168]
    page.press("+")
    closer = axis(page)
    assert closer[1] - closer[0] in (83, 84, 85)
    page.press("0")
    assert axis(page) == whole
    page.mouse("mouseWheel", "#map canvas", 200, 100, deltaX=0, deltaY=-200)
    page.drawn()
    assert not page.run("return document.querySelector('#wheel-hint').hidden")
    assert axis(page) == whole, "a wheel over a page that is read scrolls it"
    page.press_mouse("#map canvas", 200, 100)
    page.mouse("mouseWheel", "#map canvas", 200, 100, deltaX=0, deltaY=-200)
    page.wait("document.querySelector('#wheel-hint').hidden")
    page.drawn()
    narrow = axis(page)
    assert narrow[1] - narrow[0] < 160
    page.click("#whole")
    assert axis(page) == whole
    for kind, x in [
        ("mousePressed", 100),
        ("mouseMoved", 150),
        ("mouseMoved", 300),
        ("mouseReleased", 300),
    ]:
        page.mouse(kind, "#curve .u-over", x, 40, button="left", clickCount=1)
    chosen = axis(page)
    assert whole[0] < chosen[0] < chosen[1] < whole[1]


def test_a_link_leads_to_module_instant_colour_and_block(page, report, demo_db):
    path = report(demo_db, "--run", "?pu_b8")
    page.open(path)
    page.press("c")
    page.press("ArrowRight")
    page.run("document.querySelectorAll('#instant tbody tr')[3].click()")
    page.drawn()
    before = [
        page.text(each) for each in ("#title", "#instant-title", "#panel", "#legend", "#answer")
    ]
    fragment = page.run("return location.hash")
    assert "module=cpu_b8%2F" in fragment
    page.open(path, fragment)
    assert [
        page.text(each) for each in ("#title", "#instant-title", "#panel", "#legend", "#answer")
    ] == before
    page.open(path, "#module=of_yesterday&step=3")
    assert "This report has no module of_yesterday" in page.text("#link-fault")
    assert "(the peak)" in page.text("#instant-title")


def test_every_module_opens_and_its_row_is_marked(page, report, demo_db):
    page.open(report(demo_db))
    options = page.run(
        "return Array.from(document.querySelectorAll('#module option'), each => each.text)"
    )
    assert len(options) >= 15
    for number, text in enumerate(options):
        page.run(
            "const select = document.querySelector('#module'); select.selectedIndex = arguments[0];"
            "select.dispatchEvent(new Event('change'))",
            number,
        )
        name = text.rpartition(" · ")[0]
        page.wait("document.querySelector('#title').innerText === arguments[0]", name)
        for _ in range(3):
            page.press("c")
        page.click("input[value=op]")
        page.click("input[value=library]")
        page.click("input[value=stack]")


def test_modules_are_sorted_filtered_and_opened_by_a_click(page, report, demo_db, demo):
    page.open(report(demo_db))
    figures = demo.execute(
        "SELECT need_bytes, peak_bytes FROM memory_figures WHERE total_bytes > 0 "
        "ORDER BY need_bytes DESC LIMIT 8"
    ).fetchall()
    assert any(need != peak for need, peak in figures)
    shown = [[human_bytes(size) for size in row] for row in figures]
    assert [row[4:6] for row in page.rows("#modules")] == shown
    page.run("document.querySelectorAll('#modules .sort')[1].click()")
    page.run("document.querySelectorAll('#modules .sort')[1].click()")
    functions = [row[1] for row in page.rows("#modules")]
    assert functions == sorted(functions)
    page.run(
        "const filter = document.querySelector('#filter'); filter.value = 'tpu';"
        "filter.dispatchEvent(new Event('input'))"
    )
    assert {row[0] for row in page.rows("#modules")} == {"tpu_b8"}
    page.click("#modules tbody tr")
    page.wait("document.querySelector('#title').innerText.startsWith('tpu_b8')")
    assert (
        page.run("return document.querySelector('#modules tr[aria-selected=true] th').innerText")
        == "tpu_b8"
    )


@pytest.mark.parametrize(
    ("base", "new"),
    [("cpu_b8_old", "cpu_b8"), pytest.param("cpu_b8", "cpu_b16", marks=pytest.mark.by_hand)],
)
def test_parts_of_a_change_add_up_to_it(page, report, demo_db, call, base, new):
    page.open(report(demo_db, "--run", new, "--diff", base))
    _, out, _ = call("diff", base, new, "--db", demo_db, "--format", "csv")
    peaks = {
        row["function_name"]: row
        for row in rows_of(out)
        if row["figure"] == "peak" and not row["part"]
    }
    shown = {row[0]: row for row in page.rows("#pairs")}
    assert set(shown) == set(peaks)
    for number, name in enumerate(row[0] for row in page.rows("#pairs")):
        page.run("document.querySelectorAll('#pairs tbody tr')[arguments[0]].click()", number)
        page.wait(
            "document.querySelector('#pairs tr[aria-selected=true] th').innerText === arguments[0]",
            name,
        )
        change = int(peaks[name]["delta_bytes"])
        size = human_bytes(abs(change))
        signed = f"{'+' if change > 0 else '−' if change < 0 else '±'}{size}"
        assert shown[name][4] == signed
        for key in range(page.run("return document.querySelectorAll('#diff-keys button').length")):
            page.run("document.querySelectorAll('#diff-keys button')[arguments[0]].click()", key)
            rows = page.rows("#parts")
            if rows:
                assert rows[-1][:4] == [
                    "sum", human_bytes(int(peaks[name]["base_bytes"])),
                    human_bytes(int(peaks[name]["new_bytes"])), signed,
                ]  # fmt: skip
    page.click("#diff-open button")
    page.wait("document.querySelector('#title').innerText.startsWith(arguments[0])", base)


HOSTILE = (
    "</script><script>window.ran=1</script><img src=x onerror=window.ran=2>"
    "\u202egnp{{slots}}__proto__"
)


def test_hostile_names_are_text(page, report, call, tmp_path):
    run = f"{HOSTILE}\" onclick='window.ran=3'"
    folder = tmp_path / "dumps"
    shutil.copytree(DEMO / "cpu_b8", folder)
    for path in folder.iterdir():
        text = path.read_text()
        text = text.replace("/home/user/model/train.py", f"/home/{HOSTILE}/x.py")
        path.write_text(text.replace('op_name="jit(train_step)', f'op_name="{HOSTILE}(train_step)'))
    db = tmp_path / "hostile.duckdb"
    code, _, err = call("ingest", folder, "--db", db, "--run", run)
    assert code in (0, 4), err
    page.open(report(db))
    assert "</script>" in page.text("#title")
    assert "\\u202e" in page.text("#title")
    for number in range(4):
        page.press("c")
        page.run("document.querySelectorAll('#instant tbody tr')[arguments[0]].click()", number)
        page.drawn()
    page.run("document.querySelectorAll('details').forEach(each => { each.open = true; })")
    page.click("input[value=op]")
    page.run("document.querySelector('#lines tbody tr')?.click()")
    page.drawn()
    assert HOSTILE.replace("\u202e", "\\u202e")[:20] in page.text("body")
    result = page.run(
        "return [typeof window.ran, document.images.length, "
        "document.querySelectorAll('script:not([type])').length, "
        "document.querySelectorAll('[onclick], [onerror], [src]').length]"
    )
    assert result == ["undefined", 0, 1, 0]


def test_the_policy_lets_nothing_else_run_or_be_asked_for(window, report, demo_db):
    window.resize(1280)
    window.open(report(demo_db, "--run", "cpu_b8", "--function", "train_step"))
    window.driver.set_script_timeout(headless.PATIENCE)
    outcome = window.driver.execute_async_script(
        "const done = arguments[0]; const added = document.createElement('script');"
        "added.textContent = 'window.ran = 1'; document.body.append(added);"
        "const picture = document.createElement('img'); picture.src = 'https://example.com/x.png';"
        "document.body.append(picture);"
        "fetch('https://example.com/').then(() => 'asked', () => 'refused')"
        ".then(result => done([result, typeof window.ran]))"
    )
    assert outcome == ["refused", "undefined"]
    printed, urls = window.messages()
    for directive in ("script-src", "img-src", "connect-src"):
        assert any(directive in message for message in printed)
    assert urls <= {window.page}


def without_live_ranges(folder):
    shutil.copytree(DEMO / "cpu_b8", folder)
    for path in folder.glob("*live-range.txt"):
        path.unlink()


def test_without_live_ranges_nothing_is_drawn(page, report, call, tmp_path):
    without_live_ranges(tmp_path / "dumps")
    db = tmp_path / "unknown.duckdb"
    call("ingest", tmp_path / "dumps", "--db", db, "--run", "no_ranges")
    page.open(report(db))
    assert page.text("#answer").startswith("Peak unknown: ")
    assert "live-range.txt" in page.text("#states")
    assert not page.run("return document.querySelector('#pictures').checkVisibility()")
    assert page.run("return document.querySelector('#split').childElementCount") > 0
    assert {row[5] for row in page.rows("#modules")} == {"peak unknown"}
    assert all(row[4].endswith("iB") for row in page.rows("#modules")), "what XLA reserves is known"
    page.press("ArrowRight")
    page.press("c")
    page.press("+")


def test_without_temporary_values_there_is_no_map(page, report, demo_db):
    page.open(report(demo_db, "--run", "cpu_b8", "--function", "init"))
    assert "All of it is fixed" in page.text("#answer")
    assert not page.run("return document.querySelector('#map').checkVisibility()")
    assert page.run("return document.querySelector('#curve canvas').checkVisibility()")
    page.press("+")
    page.press("0")


@pytest.mark.parametrize("is_dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_no_page_scrolls_sideways(page, report, demo_db, width, is_dark):
    page.resize(width, is_dark=is_dark)
    page.open(report(demo_db, "--run", "cpu_b8", "--diff", "cpu_b8_old"))
    page.run("document.querySelectorAll('details').forEach(each => { each.open = true; })")
    page.run("document.querySelectorAll('#instant tbody tr')[1].click()")
    page.drawn()
    assert page.run("return document.documentElement.scrollWidth") == width
    ground = page.run("return getComputedStyle(document.body).backgroundColor")
    assert (ground == "rgb(21, 24, 28)") == is_dark
    page.click("#theme")
    assert page.run("return getComputedStyle(document.body).backgroundColor") != ground


def test_the_curve_is_on_the_first_screen(page, report, demo_db):
    page.resize(1400)
    page.open(report(demo_db, "--run", "gpu_b8", "--function", "train_step"))
    bottom = "return document.querySelector(arguments[0]).getBoundingClientRect().bottom"
    assert 0 < page.run(bottom, "#curve") < page.run(bottom, "#map") < 900


@pytest.mark.skipif(
    not headless.AXE.exists(), reason="axe-core is not installed: npm ci in page/scripts"
)
@pytest.mark.parametrize("is_dark", [False, True], ids=["light", "dark"])
def test_axe_finds_nothing_serious(page, report, demo_db, is_dark):
    page.resize(1280, is_dark=is_dark)
    page.open(report(demo_db, "--run", "cpu_b8", "--diff", "cpu_b8_old"))
    page.run("document.querySelectorAll('details').forEach(each => { each.open = true; })")
    page.drawn()
    assert page.barriers() == []


def test_enter_finds_the_largest_first(page, report, demo_db, demo):
    page.open(report(demo_db, "--run", "cpu_b8", "--function", "train_step"))
    page.press("/")
    page.run(
        "const find = document.querySelector('#find'); find.value = 'f32[';"
        "find.dispatchEvent(new Event('input'))"
    )
    page.wait("location.hash.includes('find=')")
    page.press("Enter")
    page.wait("location.hash.includes('block=')")
    name = page.run("return new URLSearchParams(location.hash.slice(1)).get('block')")
    rows = demo.execute(
        "SELECT instruction_name, size_bytes FROM value_details WHERE run_name = 'cpu_b8' "
        "AND function_name = 'train_step' AND allocation_kind = 'temp' AND contains(shape, 'f32[')"
    ).fetchall()
    assert dict(rows)[name] == max(size for _, size in rows)


def test_a_print_is_light_and_open(page, report, demo_db):
    page.resize(1280, is_dark=True)
    page.open(report(demo_db, "--run", "cpu_b8", "--function", "train_step"))
    page.run(
        "addEventListener('beforeprint', () => { window.printed ="
        "[getComputedStyle(document.body).backgroundColor, document.querySelectorAll("
        "'details:not([open])').length, "
        "document.querySelectorAll('.saved table tbody tr').length]; })"
    )
    printed = page.driver.execute_cdp_cmd("Page.printToPDF", {})
    assert len(printed["data"]) > 50_000
    ground, closed, rows = page.run("return window.printed")
    assert (ground, closed) == ("rgb(255, 255, 255)", 0)
    assert rows > 50
    assert page.run("return getComputedStyle(document.body).backgroundColor") == "rgb(21, 24, 28)"
    assert page.run("return document.querySelectorAll('details[open]').length") == 0


def test_damaged_data_of_one_module_is_reported(page, report, demo_db, tmp_path):
    text = report(demo_db).read_text(encoding="utf-8")
    at = text.index('id="slot-1">') + len('id="slot-1">')
    path = tmp_path / "damaged.html"
    path.write_text(text[: at + 40] + "AAAA" * 5 + text[at + 60 :], encoding="utf-8")
    page.open(path)
    assert "cannot be read" in page.text("#answer")
    page.run("document.querySelectorAll('#modules tbody tr')[2].click()")
    page.wait("document.querySelector('#answer').innerText.includes('Most is held by')")


def test_a_residual_has_its_line_in_the_layer(page, report, call, tmp_path):
    db, dumps = tmp_path / "loops.duckdb", tmp_path / "dumps"
    dumps.mkdir()
    for path in (ROOT / "data" / "loops" / "cpu").glob("*.jit_layers_named.*"):
        shutil.copy(path, dumps)
    code, _, err = call("ingest", dumps, "--db", db, "--run", "loops")
    assert code == 0, err
    page.open(report(db, "--function", "layers_named"))
    lines = [row[6] for row in page.rows("#instant")]
    row = next(number for number, line in enumerate(lines) if line.startswith("saved "))
    page.run("document.querySelectorAll('#instant tbody tr')[arguments[0]].click()", row)
    page.drawn()
    assert re.search(
        r"(residual|layer input) of loops\.py:\d+, 6 × .* by the loop of loops\.py",
        page.text("#panel"),
    )


@pytest.mark.slow
def test_a_module_of_100_000_values_is_usable(page, report, call, tmp_path):
    import one_arena

    one_arena.write(tmp_path / "big", 100_000)
    db = tmp_path / "big.duckdb"
    code, _, err = call("ingest", tmp_path / "big", "--db", db, "--run", "big")
    assert code in (0, 4), err
    path = report(db)
    assert path.stat().st_size < 5_000_000
    page.open(path)
    with duckdb.connect(str(db), read_only=True) as con:
        figures = figures_of(con, "big", "train_step")
        assert page.text("#answer").startswith(human_bytes(figures["peak_bytes"]))
        curve = rows_of(page.copy("#peaks-copy button"))
        length = figures["schedule_length"]
        for step in (0, 1, length // 3, figures["peak_time"], length):
            assert int(curve[step]["occupied_bytes"]) == occupied(con, figures, step)
    for key in ("+", "+", "ArrowRight", "c", "c", "0", "p"):
        page.press(key)
    page.press_mouse("#map canvas", 300, 200)
    page.mouse("mouseWheel", "#map canvas", 300, 200, deltaX=0, deltaY=-300)
    page.run("document.querySelector('#find').focus()")
    page.run("document.querySelectorAll('#lines tbody tr')[0].click()")
    page.drawn()
    assert re.match(r"[\d,]+ values? found", page.text("#hits"))
    worst = page.driver.execute_async_script(
        "const done = arguments[0], times = []; let last = performance.now();"
        "const frame = () => { const now = performance.now(); times.push(now - last); last = now;"
        "if (times.length > 30) { done(times.sort((a, b) => a - b)[15]); return; }"
        "document.querySelector('#closer').click(); requestAnimationFrame(frame); }; frame();"
    )
    assert worst < 1000, "half of the frames of a zoom [ms]; 20 on a quiet machine"
