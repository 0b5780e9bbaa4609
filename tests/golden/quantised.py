"""Turns a checkpoint of floats into one whose linear layers are codes of 8 bits, for make_golden.py."""

import json
from pathlib import Path

import safetensors.torch
import torch

BLOCK = 32
CODES = {"int8": (torch.int8, 127.0), "fp8": (torch.float8_e4m3fn, 448.0)}


def compressed_tensors(format_name: str, number: str, strategy: str, group: int | None = None) -> dict:
    weights = {"num_bits": 8, "type": number, "symmetric": True, "dynamic": False, "strategy": strategy,
               "group_size": group, "observer": "minmax"}
    return {"quant_method": "compressed-tensors", "format": format_name, "quantization_status": "compressed",
            "ignore": ["lm_head"], "kv_cache_scheme": None,
            "config_groups": {"group_0": {"targets": ["Linear"], "input_activations": None,
                                          "output_activations": None, "weights": weights}}}


#  kind: codes, outputs and inputs that share a scale (None: all), suffix of scales, quantization_config
KINDS = {
    "int8": ("int8", 1, None, "_scale", compressed_tensors("int-quantized", "int", "channel")),
    "int8_group": ("int8", 1, BLOCK, "_scale", compressed_tensors("int-quantized", "int", "group", BLOCK)),
    "fp8": ("fp8", 1, None, "_scale", compressed_tensors("float-quantized", "float", "channel")),
    "fp8_block": ("fp8", BLOCK, BLOCK, "_scale_inv",
                  {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
                   "weight_block_size": [BLOCK, BLOCK], "modules_to_not_convert": ["lm_head"]}),
}


def quantise_weight(weight: torch.Tensor, codes: str, outputs: int, inputs: int | None):
    """Codes [n, k], and scales [n / outputs, k / inputs]: bf16 numbers, but kept as f32, with which transformers
    dequantises to f32; as bf16 it would round the products, too."""
    dtype, most = CODES[codes]
    n, k = weight.shape
    inputs = inputs or k
    blocks = weight.float().reshape(n // outputs, outputs, k // inputs, inputs)
    scale = (blocks.abs().amax(dim=(1, 3)) / most).to(torch.bfloat16)
    scaled = (blocks / scale.float()[:, None, :, None]).clamp(-most, most).reshape(n, k)
    return (scaled.round() if dtype == torch.int8 else scaled).to(dtype), scale.float()


def quantise(folder: Path, kind: str) -> None:
    codes, outputs, inputs, suffix, config = KINDS[kind]
    file = folder / "model.safetensors"
    tensors = safetensors.torch.load_file(file)
    for name in [name for name in tensors if name.endswith("_proj.weight")]:
        tensors[name], tensors[name + suffix] = quantise_weight(tensors[name], codes, outputs, inputs)
    safetensors.torch.save_file(tensors, file, metadata={"format": "pt"})
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"quantization_config": config}, indent=2) + "\n")
