import pytest

from frenzy_shared.catalog.gpus import all_gpus, assumed_gpu, find_gpu

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
    "NVIDIA H100 80GB HBM3 ": "H100 SXM5 80GB",
    "NVIDIA H800": "H800 SXM5 80GB",
    "NVIDIA A800-SXM4-80GB": "A800 SXM4 80GB",
    "NVIDIA A40": "A40",
    "NVIDIA A30": "A30",
    "NVIDIA A16": "A16 (per GPU, 4 per board)",
    "NVIDIA A2": "A2",
    "NVIDIA L20": "L20",
    "NVIDIA T4": "T4",
    "Tesla V100-PCIE-16GB": "V100 PCIe 16GB",
    "Tesla V100-SXM2-32GB-LS": "V100 SXM2 32GB",
    "Tesla V100S-PCIE-32GB": "V100S PCIe 32GB",
    "Tesla P100-SXM2-16GB": "Tesla P100 SXM2 16GB",
    "Tesla P40": "Tesla P40",
    "NVIDIA TITAN RTX": "TITAN RTX",
    "Quadro RTX 8000": "Quadro RTX 8000",
    "NVIDIA GeForce GTX 1080 Ti": "GTX 1080 Ti",
    "GeForce RTX 3080": "RTX 3080 10GB",
    "NVIDIA GeForce RTX 3080 Ti": "RTX 3080 Ti",
    "NVIDIA GeForce RTX 5090": "RTX 5090",
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": "RTX PRO 6000 Blackwell",
    "NVIDIA GB200": "GB200 (per GPU)",
    "NVIDIA GB10": "GB10 (DGX Spark)",
    "AMD Instinct MI210": "MI210",
    "AMD Instinct MI355X": "MI355X",
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
        "NVIDIA GeForce RTX 3070 Laptop GPU",
        "NVIDIA GeForce RTX 2080 Super with Max-Q Design",
        "NVIDIA GeForce RTX 4070 SUPER",
        "NVIDIA GH200 120GB",
        "NVIDIA A100-SXM4-40GB MIG",
        "NVIDIA Fantasy 9 MIG 1g.5gb",
        "NVIDIA L4T",
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


def test_instances_get_their_share_of_the_gpu():
    whole = find_gpu("NVIDIA A100-SXM4-40GB")
    small = find_gpu("NVIDIA A100-SXM4-40GB MIG 1g.5gb")
    assert small.memory_bytes == 5 * 1024**3
    assert small.tensor_flops == whole.tensor_flops / 7
    assert small.bandwidth == whole.bandwidth / 8
    assert small.link == whole.host_link
    assert not small.collectives
    assert find_gpu("NVIDIA A30 MIG 2g.12gb").tensor_flops == find_gpu("A30").tensor_flops / 2
    media = find_gpu("NVIDIA H100 80GB HBM3 MIG 1g.10gb+me")
    assert media.memory_bytes == 10 * 1024**3
    part = find_gpu("NVIDIA A100-SXM4-80GB MIG 1c.3g.40gb")
    assert part.tensor_flops == pytest.approx(whole.tensor_flops * 3 / 7)


@pytest.mark.parametrize(("capability", "bf16"), [("8.6", True), ("12.0", True), ("7.5", False)])
def test_an_unknown_card_is_assumed_from_what_it_reports(capability, bf16):
    gpu = assumed_gpu("NVIDIA Fantasy 9000", 40 * 10**9, capability)
    assert gpu.assumed
    assert gpu.memory_bytes == 40 * 10**9
    assert gpu.bf16 is bf16
    assert gpu.sources.startswith("assumption: as fast as ")
    assert not any(known.assumed for known in all_gpus())


def test_tf32_is_half_of_the_low_precision_rate_where_it_is_known():
    known = [gpu for gpu in all_gpus() if gpu.tf32_flops is not None]
    assert len(known) > 40
    for gpu in known:
        assert gpu.tf32_flops == pytest.approx(gpu.tensor_flops / 2, rel=0.02), gpu.name
    assert find_gpu("Tesla V100-SXM2-16GB").tf32_flops is None
    assert find_gpu("Tesla T4").tf32_flops is None
