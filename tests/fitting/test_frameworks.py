"""Words of frameworks: one table for patches, notes and advice."""

import pytest

from bufdb.database import store
from bufdb.fitting.frameworks import FRAMEWORKS, JAX, of_file, setting_words

FIELDS = "framework, folder, checkpoint, donation, offload, chunks, dtype, attention, has_settings"


def test_advice_has_the_same_words(tmp_path):
    with store.open_writable(str(tmp_path / "d.duckdb")) as con:
        rows = con.execute(f"SELECT {FIELDS} FROM framework_words ORDER BY place").fetchall()
    assert rows == [
        (one.name, one.folder, one.checkpoint, one.donation, one.offload, one.chunks, one.dtype,
         one.attention, one.has_settings)
        for one in FRAMEWORKS
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/x/site-packages/flax/linen/module.py", "linen"),
        ("/x/site-packages/flax/nnx/transforms/compilation.py", "nnx"),
        ("/x/site-packages/equinox/_jit.py", "equinox"),
        ("/x/site-packages/keras/src/layers/layer.py", "keras"),
        ("/src/MaxText/layers/models.py", "maxtext"),
        ("/x/haliax/nn/scan.py", "haliax"),
        ("/home/user/train.py", "jax"),
    ],
)
def test_a_file_is_of_a_framework(path, name):
    assert of_file(path).name == name


def test_a_step_of_a_library_has_settings():
    one = of_file("/src/maxtext/train.py")
    text = setting_words(one, has_host_memory=True)
    assert "remat_policy=full" in text and "decoder_layer_input=offload" in text
    assert "offload" not in setting_words(one, has_host_memory=False)
    assert not JAX.has_settings
