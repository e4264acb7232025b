"""Weights in and out: state dictionaries, and the file formats in which they come.

Every reader takes a path or the bytes of the file as a tensor. From a path the bytes stay on disk
until a tensor is used. A file that is damaged, cut off or made to do harm raises FileFormatError;
no reader runs code from a file or takes memory for sizes that the file only claims.
"""

from tinycore.nn.state.archives import tar_extract, zip_extract
from tinycore.nn.state.dictionaries import get_parameters, get_state_dict, load_state_dict
from tinycore.nn.state.ggml import ggml_data_to_tensor
from tinycore.nn.state.gguf import gguf_load
from tinycore.nn.state.pytorch import torch_load
from tinycore.nn.state.safetensors import safe_load, safe_load_metadata, safe_save
from tinycore.nn.state.source import accept_filename

__all__ = [
    "accept_filename",
    "get_parameters",
    "get_state_dict",
    "ggml_data_to_tensor",
    "gguf_load",
    "load_state_dict",
    "safe_load",
    "safe_load_metadata",
    "safe_save",
    "tar_extract",
    "torch_load",
    "zip_extract",
]
