"""GPUs and models of one's own: read, checked with words, and looked at first."""

import pytest

from frenzy import catalogue
from frenzy.specs import read
from frenzy_marp.core.candidates import gpu_model
from frenzy_shared.catalog.gpus import all_gpus, find_gpu, named_gpu, use_own_gpus
from frenzy_shared.domain.cluster import KindSummary
from frenzy_shared.errors import InvalidSpec
from frenzy_shared.messages.catalogue import read_catalogue

GPU = """
gpus:
  - name: Accelerator 48GB
    pattern: Acme Accelerator( X)? 48G
    memory: 48GiB
    compute_capability: "8.6"
    tensor_tflops: 150
    fp32_tflops: 37
    bandwidth_gb_s: 900
"""
MODEL = """
models:
  our-tiny: {model_type: llama, hidden_size: 96, intermediate_size: 256, num_hidden_layers: 2,
             num_attention_heads: 4, vocab_size: 256}
"""


@pytest.fixture(autouse=True)
def clean():
    yield
    use_own_gpus(())


@pytest.fixture
def file(tmp_path, monkeypatch):
    path = tmp_path / "catalog.yaml"

    def write(text):
        path.write_text(text)
        monkeypatch.setenv("FRENZY_CATALOG", str(path))
        return path

    return write


def test_a_gpu_of_ones_own_is_known_by_name_and_pattern(file):
    file(GPU)
    catalogue.use_gpus()
    gpu = find_gpu("Acme Accelerator X 48G")
    assert gpu is find_gpu("Accelerator 48GB") is named_gpu("accelerator 48gb")
    assert (gpu.memory_bytes, gpu.bf16, gpu.tensor_flops) == (48 * 2**30, True, 150e12)
    assert gpu.link == gpu.host_link == 16e9
    assert all_gpus()[0] == gpu
    kind = KindSummary(
        kind="Acme Accelerator 48G",
        memory_bytes=47 * 2**30,
        compute_capability="8.6",
        emulated=False,
        relative_speed=1.0,
        node_counts=(8,),
    )
    assert not gpu_model(kind).assumed


def test_ones_own_goes_before_what_is_shipped(file):
    text = GPU.replace("Acme Accelerator( X)? 48G", "RTX 4090")
    file(text)
    assert find_gpu("NVIDIA RTX 4090").sources != "your catalogue"
    catalogue.use_gpus()
    assert find_gpu("NVIDIA RTX 4090").sources == "your catalogue"


def test_a_model_of_ones_own_is_sent_as_its_configuration(file):
    file(MODEL)
    spec = read({"model": "our-tiny", "data": "node:/x", "global_batch_size": 1}).preview()
    assert spec.model["hidden_size"] == 96


def test_without_a_file_nothing_is_added(monkeypatch, tmp_path):
    monkeypatch.delenv("FRENZY_CATALOG", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert catalogue.own().gpus == ()
    (tmp_path / "frenzy").mkdir()
    (tmp_path / "frenzy" / "catalog.yaml").write_text(GPU)
    assert len(catalogue.own().gpus) == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("gpu: []", "did you mean 'gpus'"),
        (GPU.replace("memory:", "memroy:"), "did you mean 'memory'"),
        (GPU.replace("48GiB", "much"), "gpus.0.memory"),
        (GPU.replace("( X)?", "(X"), "not a regular expression"),
        (GPU.replace("150", "-1"), "gpus.0.tensor_tflops"),
        (GPU.replace("    bandwidth_gb_s: 900\n", ""), "bandwidth_gb_s: is required"),
        (MODEL.replace("hidden_size: 96", "hidden_size: 97"), "models.our-tiny"),
        (MODEL.replace("model_type: llama", "model_type: bert"), "models.our-tiny"),
        ("- a", "mapping"),
    ],
)
def test_a_wrong_entry_is_named(file, text, words):
    with pytest.raises(InvalidSpec) as caught:
        read_catalogue(file(text))
    said = f"{caught.value.message} {[problem.detail for problem in caught.value.problems]}"
    assert words in said
    assert "catalog.yaml" in caught.value.message


def test_a_named_file_that_is_not_there_is_said(monkeypatch, tmp_path):
    monkeypatch.setenv("FRENZY_CATALOG", str(tmp_path / "none.yaml"))
    with pytest.raises(InvalidSpec, match=r"none\.yaml"):
        catalogue.own()
