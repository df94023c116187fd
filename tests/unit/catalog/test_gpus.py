import pytest

from frenzy_shared.catalog.gpus import all_gpus, find_gpu

REAL_NAMES = {
    "NVIDIA H200": "H200 SXM 141GB",
    "NVIDIA H200 NVL": "H200 NVL 141GB",
    "NVIDIA H20": "H20 96GB",
    "NVIDIA H100 80GB HBM3": "H100 SXM5 80GB",
    "NVIDIA H100 PCIe": "H100 PCIe 80GB",
    "NVIDIA H100 NVL": "H100 NVL 94GB",
    "NVIDIA GH200 480GB": "GH200 96GB",
    "NVIDIA A100-SXM4-80GB": "A100 SXM4 80GB",
    "NVIDIA A100-SXM4-40GB": "A100 SXM4 40GB",
    "NVIDIA A100 80GB PCIe": "A100 PCIe 80GB",
    "A100-PCIE-40GB": "A100 PCIe 40GB",
    "NVIDIA A10": "A10",
    "NVIDIA A10G": "A10G",
    "NVIDIA L4": "L4",
    "NVIDIA L40S": "L40S",
    "NVIDIA L40": "L40",
    "Tesla T4": "T4",
    "Tesla V100-SXM2-16GB": "V100 SXM2 16GB",
    "Tesla V100-SXM3-32GB": "V100 SXM2 32GB",
    "NVIDIA GeForce RTX 2080 Ti": "RTX 2080 Ti",
    "NVIDIA GeForce RTX 3090": "RTX 3090",
    "NVIDIA GeForce RTX 3090 Ti": "RTX 3090 Ti",
    "NVIDIA GeForce RTX 4090": "RTX 4090",
    "NVIDIA GeForce RTX 4090 D": "RTX 4090 D",
    "NVIDIA RTX A6000": "RTX A6000",
    "NVIDIA RTX 6000 Ada Generation": "RTX 6000 Ada",
    "Quadro RTX 6000": "Quadro RTX 6000",
    "NVIDIA B200": "B200 SXM",
    "AMD Instinct MI300X": "MI300X",
    "AMD Instinct MI250X": "MI250X (per GCD, 2 per card)",
}


@pytest.mark.parametrize(("reported", "model"), REAL_NAMES.items())
def test_names_that_drivers_report_find_their_model(reported, model):
    gpu = find_gpu(reported)
    assert gpu is not None
    assert gpu.name == model


@pytest.mark.parametrize(
    "unknown",
    [
        "NVIDIA A100-SXM-64GB",  # Leonardo's part, not an A10
        "NVIDIA GeForce RTX 3080 Laptop GPU",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA H2000",
        "",
        "A1",
    ],
)
def test_names_beside_a_known_one_stay_unknown(unknown):
    assert find_gpu(unknown) is None


def test_every_model_finds_itself_and_has_finite_rates():
    gpus = all_gpus()
    assert len(gpus) > 70
    for gpu in gpus:
        assert find_gpu(gpu.name) == gpu
        assert gpu.memory_bytes > 4 * 1024**3
        assert min(gpu.tensor_flops, gpu.fp32_flops, gpu.bandwidth, gpu.link) > 1e9
        assert gpu.sources


def test_every_name_matches_one_row_only():
    names = [gpu.name for gpu in all_gpus()]
    assert len(set(names)) == len(names)


def test_emulated_kinds_are_modest_and_have_bf16_but_not_fp16():
    gpu = find_gpu("emulated-anything")
    assert gpu is not None
    assert gpu.emulated
    assert gpu.bf16
    assert not gpu.fp16
    assert 1e9 < gpu.tensor_flops < 1e12


def test_only_recent_cards_compute_in_bf16():
    assert not find_gpu("Tesla T4").bf16
    assert not find_gpu("Tesla V100-PCIE-32GB").bf16
    assert find_gpu("NVIDIA A30").bf16
