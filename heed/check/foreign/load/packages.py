"""What packages are called where they are installed from, and which of them do nothing to a result."""

from __future__ import annotations

# Import name -> what to tell pip, where that is not the import name with dashes.
DISTRIBUTIONS = {
    "cv2": "opencv-python",
    "sklearn": "scikit-learn",
    "skimage": "scikit-image",
    "PIL": "pillow",
    "yaml": "pyyaml",
    "bs4": "beautifulsoup4",
    "dateutil": "python-dateutil",
    "dotenv": "python-dotenv",
    "attr": "attrs",
    "absl": "absl-py",
    "hydra": "hydra-core",
    "pkg_resources": "setuptools",
    "Levenshtein": "levenshtein",
    "mmseg": "mmsegmentation",
    "mmcls": "mmpretrain",
    "pl_bolts": "lightning-bolts",
    "fast_transformers": "pytorch-fast-transformers",
    "taming": "taming-transformers",
    "transformer_engine": "transformer-engine[pytorch]",
    "megatron": "megatron-core",
    "fla": "flash-linear-attention",
    "tensorboardX": "tensorboardX",
    "open_clip": "open-clip-torch",
    "google.protobuf": "protobuf",
    "google.cloud": "google-cloud-storage",
    "torch_xla": "torch-xla",
    "pytorch_pretrained_bert": "pytorch-pretrained-bert",
    "rotary_embedding_torch": "rotary-embedding-torch",
    "efficientnet_pytorch": "efficientnet-pytorch",
    "segmentation_models_pytorch": "segmentation-models-pytorch",
}
# Not to be had from pip under a name that can be guessed.
ELSEWHERE = {
    "apex": "build it from github.com/NVIDIA/apex (what pip calls apex is something else)",
    "detectron2": "build it from github.com/facebookresearch/detectron2",
    "pytorch3d": "build it from github.com/facebookresearch/pytorch3d",
    "clip": "install it from github.com/openai/CLIP (what pip calls clip is something else)",
    "google.colab": "it is there in Colab only",
    "_C": "it is compiled by the project's own setup",
}
# Nothing that these do is part of a result: logs, progress, plots, checks of types.
HARMLESS = frozenset(
    {
        *("loguru", "wandb", "tensorboard", "tensorboardX", "tensorboard_logger", "visdom", "comet_ml", "neptune"),
        *("mlflow", "clearml", "swanlab", "termcolor", "colorama", "rich", "tqdm", "icecream", "prettytable"),
        *("tabulate", "matplotlib", "seaborn", "plotly", "beartype", "typeguard", "jaxtyping", "torchtyping"),
        *("nptyping", "torchinfo", "torchsummary", "torchsummaryX", "thop", "ptflops", "fvcore", "torchviz"),
        *("line_profiler", "memory_profiler", "nvtx"),
    }
)
# Their decorators make kernels: the function below one is no function.
KERNELS = frozenset({"triton", "cupy", "pycuda", "tilelang", "taichi", "numba_cuda"})


def remedy(name: str) -> str:
    """What to do about a module that is not there."""
    known = listed(name)
    if known in ELSEWHERE:
        return ELSEWHERE[known]
    return f"run: pip install {DISTRIBUTIONS.get(known, name.partition('.')[0].replace('_', '-'))}"


def listed(name: str) -> str:
    """The entry of the tables that a module belongs to, the longest; empty if there is none."""
    parts = name.split(".")
    names = [".".join(parts[:length]) for length in range(len(parts), 0, -1)]
    return next((one for one in names if one in ELSEWHERE or one in DISTRIBUTIONS), "")
