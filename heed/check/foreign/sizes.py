"""The sizes of a trial, and which of them a name means: by the whole name, then by its words.

`d_model`, `n_embed`, `heads_count`, `dimModel`: people combine few words in many ways. What a name means decides what
is passed, and a trial decides whether that was right.
"""

from __future__ import annotations

import re
from collections.abc import Set
from dataclasses import dataclass


def listed(text: str) -> frozenset[str]:
    """Words, written side by side."""
    return frozenset(text.split())


@dataclass(frozen=True)
class Sizes:
    """The sizes of a trial, all different, so that one taken for another shows."""

    rows: int = 3
    tokens: int = 7
    source: int = 5
    width: int = 24
    heads: int = 4
    kv_heads: int = 2
    hidden: int = 40
    vocabulary: int = 37
    longest: int = 64
    window: int = 3
    side: int = 3  # of an image, as long as a window: then a window holds all of it
    layers: int = 2
    memory: int | None = None  # the width of what is looked at, where it is not that of the stream

    @property
    def head(self) -> int:
        return self.width // self.heads


TRIALS = (
    Sizes(),
    Sizes(width=32, window=4, side=4),
    Sizes(width=64, window=4, side=4),
    Sizes(width=128, heads=8, longest=256, window=4, side=4),
)

_SIZES: dict[str, str] = {
    "width": "d_model embed_dim hidden_size dim n_embd d_embed emb_dim model_dim width channels embed_size d in_dim "
    "input_dim dim_in feature_dim features model_size embedding_dim hid_dim dims in_features d_in out_dim d_out "
    "dim_out "
    "output_dim in_channels num_hiddens hidden_dim embedding_size emb_size n_dim num_features normalized_shape "
    "query_dim attention_dim attn_dim all_head_size input_size emb c in_size d_emb n_units units n_feat d_hidden embed "
    "query_size key_size value_size nx n_state context_dim kv_dim cross_dim memory_dim source_dim encoder_dim "
    "kdim vdim qk_dim c_in c_out hidden out_features out_channels nf dm size inp oup in_ch out_ch k_channels "
    "key_channels value_channels v_channels qdim heads_dim",
    "heads": "n_heads num_heads heads n_head nhead h num_attention_heads n_attn_heads nheads head_num head_count "
    "num_head encoder_attention_heads decoder_attention_heads attention_heads head n_h nh",
    "head": "head_dim dim_head d_head d_k d_v dim_k dim_v head_size attention_head_size d_q dim_q dk dv "
    "head_width d_kv dim_per_head rotary_dim key_dim value_dim d_keys d_values d_qk dim_heads d_key d_value",
    "kv_heads": "num_kv_heads n_kv_heads num_key_value_heads kv_heads n_groups num_groups kv_head n_kv_head "
    "num_kv_groups n_query_groups num_query_groups groups n_local_heads num_kv n_kv",
    "longest": "block_size max_len max_seq_len seq_len context_length max_position_embeddings n_ctx n_positions "
    "max_length max_seq_length context_size max_seq sequence_length ctx_len max_positions max_context seq_length "
    "maxlen max_relative_position n_position length context_len max_tokens max_t num_patches n_patches num_frames",
    "window": "window window_size attention_window sliding_window local_window win w local_window_size ws win_size",
    "side": "img_size image_size input_resolution resolution img_dim fmap_size spatial_size feat_size "
    "image_dim grid_size resolution_size size_2d crop_size",
    "hidden": "d_ff dim_feedforward ffn_dim mlp_dim ff_dim intermediate_size d_inner pf_dim ffn_hidden ff_hidden "
    "feedforward_dim hidden_features inner_dim ffn_hidden_size encoder_ffn_dim decoder_ffn_dim n_inner d_mlp "
    "mlp_hidden forward_expansion_dim ffn_embed_dim dim_ff ff ff_size ffn_num_hiddens",
    "vocabulary": "vocab_size n_vocab num_embeddings vocab vocabulary num_tokens src_vocab_size tgt_vocab_size "
    "n_tokens",
    "layers": "n_layers num_layers n_layer num_hidden_layers layers num_blocks n_blocks encoder_layers decoder_layers",
    "rows": "batch_size",
}
SIZES: dict[str, str] = {name: size for size, names in _SIZES.items() for name in names.split()}

_CAPITALS = {"V": "vocabulary", "T": "longest", "B": "rows", "H": "heads", "D": "width", "C": "width"}
_COUNT = listed("n num nb number count nr of total")
_NO_SIZE = listed(
    "drop dropout dropatt rate ratio mult multiplier multiple factor expansion eps epsilon scale theta base idx "
    "index id typ type types mode name names kind bias norm act activation stride kernel padding dilation reduction "
    "classes prob p use is has with init std device dtype lr temperature scaling fn func "
    "causal mask beam experts topk chunk path version impl backend experiment shift sr function alpha beta gamma flag "
    "seed"
)
_EXTENT = listed(
    "dim dims dimension dimensions size d channels channel ch chan chanel chans width features feature feats feat "
    "units unit hidden hiddens hid planes plane embed embeds embd emb embedding embeddings c model nf filters "
    "inplanes projs"
)
_LETTERED = listed("dim units heads layers projs feats size")  # adim, dunits, aheads: a letter says of what
_SOME = listed("kv group groups local global")  # heads, of which there are fewer than all
_LENGTH = listed("len length seq seqlen sequence ctx context positions position maxlen patches steps frames")


def cut(name: str) -> tuple[str, ...]:
    """The words of a name, in snake or camel case, without digits."""
    return tuple(part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name))


def size_word(name: str) -> str | None:
    """Which of the sizes a constructor's argument is, by its name; None if it is none."""
    plain = name.lower().strip("_")
    if name in _CAPITALS:
        return _CAPITALS[name]
    if plain in SIZES:
        return SIZES[plain]
    if plain.rstrip("0123456789_") in SIZES:
        return SIZES[plain.rstrip("0123456789_")]
    words = frozenset(part[1:] if part[1:] in _LETTERED else part for part in cut(name))
    return None if words & _NO_SIZE else _by_words(words)


def _by_words(words: Set[str]) -> str | None:
    extent = bool(words & _EXTENT)
    rules: tuple[tuple[bool, str], ...] = (
        (bool(words & {"vocab", "vocabulary"}), "vocabulary"),
        ("batch" in words, "rows"),
        (bool(words & {"layers", "blocks", "depth"}), "layers"),
        (bool(words & {"layer", "block"} and words & _COUNT), "layers"),
        (bool(words & _SOME and words & {"head", "heads", "groups"} and not extent), "kv_heads"),
        (bool(words & {"ff", "ffn", "mlp", "inner", "feedforward", "intermediate"}), "hidden"),
        (bool(words & {"window", "win"}), "window"),
        (bool(words & {"head", "heads", "nhead", "nheads"} and extent), "head"),
        (bool(words & {"head", "heads", "nhead", "nheads"}), "heads"),
        (bool(words & {"resolution", "img", "image", "spatial", "spacial", "fmap"}), "side"),
        (bool(words & _LENGTH and not words & (_EXTENT - {"size", "embeddings"})), "longest"),
        (bool(words & {"tokens", "timesteps"}), "longest"),
        ("max" in words and words <= {"max", "t", "n", "s", "l"}, "longest"),
        (extent, "width"),
    )
    return next((size for holds, size in rules if holds), None)


def is_dropout(name: str) -> bool:
    """Whether a constructor's argument is a share of what is dropped."""
    return re.search(r"drop", name.lower()) is not None and "path" not in name.lower()
