"""Compilations of one job, without any: what its children are asked for."""

from dataclasses import replace

from bufdb.blame.runs import Job, Variant


def test_the_same_is_compiled_once(tmp_path, monkeypatch):
    """A report asks again for what the comparison and the search for smaller sizes compiled."""
    requests = []

    def answer(job, variant, request, folder):
        assert folder.is_dir()
        requests.append((variant.name, dict(request["divisors"]), request["passes"]))
        return {"versions": {}, "device": "cpu", "refusal": None, "need_bytes": len(requests)}

    monkeypatch.setattr(Job, "_answer", answer)
    job = Job("train.py:step", "f32[8]", tmp_path)
    one, other = (Variant("xla_a", text, "python", {"xla_a": text}) for text in "12")
    first = job.compile(one)
    assert job.compile(one) is first and job.compile(other) is not first
    assert job.compile(one, passes=True) is not first
    small = replace(job, divisors={8: 4})
    assert small.compile(one) is replace(job, divisors={8: 4}).compile(one)
    assert replace(job, divisors={}).compile(one) is first
    assert requests == [
        ("xla_a=1", {}, False), ("xla_a=2", {}, False), ("xla_a=1", {}, True),
        ("xla_a=1", {8: 4}, False),
    ]  # fmt: skip
