"""What names mean: of a constructor's arguments, of a call's arguments, of the things in a state dict.

People name the same thing in many ways, but not in very many. A name is cut into words and looked up; what it means
decides what is passed, and a trial decides whether that was right.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum


class Role(StrEnum):
    """What an argument of a call is for."""

    INPUT = "input"  # the stream of a self-attention: queries, keys and values are made of it
    QUERY = "query"
    KEY = "key"
    VALUE = "value"
    SOURCE = "source"  # what a cross-attention looks at
    MASK = "mask"  # who sees whom, or who is there at all: an experiment tells
    PADDING = "padding"  # who is there at all
    LENGTHS = "lengths"  # how many are there
    CAUSAL = "causal"  # a switch: causal or not
    CACHE = "cache"
    USE_CACHE = "use cache"
    PLACE = "place"  # where the first token stands
    PLACES = "places"  # where each token stands
    TABLES = "tables"  # cosines and sines of a rotation
    BIAS = "bias"  # what is added to the scores by place
    RESIDUAL = "residual"  # what is added to the output
    WEIGHTS = "weights"  # a switch: give the attention weights, too
    IDS = "ids"  # token ids
    LABELS = "labels"
    LENGTH = "length"  # a number of tokens
    WIDTH = "width"
    HEADS = "heads"
    OTHER = "other"


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
    layers: int = 2

    @property
    def head(self) -> int:
        return self.width // self.heads


TRIALS = (Sizes(), Sizes(width=32), Sizes(width=64), Sizes(width=128, heads=8, longest=256))

_NAMES: dict[Role, str] = {
    Role.QUERY: "q query queries xq x_q q_in query_states query_input query_layer query_tensor tgt_q inputs_q",
    Role.KEY: "k key keys xk x_k k_in key_states key_input key_layer key_tensor inputs_k",
    Role.VALUE: "v value values val xv x_v v_in value_states value_input value_layer value_tensor inputs_v",
    Role.INPUT: "x inp input inputs hidden_states hidden src tgt embeddings embeds emb h seq sequence tokens_embedded "
    "xs feats features z data input_tensor tensor src_seq embedded hidden_state target tgt_seq",
    Role.SOURCE: "memory context ctx encoder_hidden_states encoder_output encoder_out enc_output enc_out enc "
    "source y kv "
    "encoder_states encoder_memory cond key_value_states memory_states cross",
    Role.PADDING: "key_padding_mask src_key_padding_mask padding_mask pad_mask tgt_key_padding_mask "
    "encoder_padding_mask self_attn_padding_mask key_mask kv_mask memory_key_padding_mask src_padding_mask valid_mask",
    Role.MASK: "mask attn_mask attention_mask src_mask tgt_mask self_mask slf_attn_mask causal_mask bias attn_bias "
    "attention_bias trg_mask look_ahead_mask visible allowed input_mask self_attn_mask m",
    Role.LENGTHS: "valid_lens lengths valid_lengths seq_lens lens seqlens key_lengths valid_len sequence_lengths",
    Role.CAUSAL: "is_causal causal autoregressive use_causal_mask apply_causal_mask causal_masking",
    Role.CACHE: "past_key_value past_key_values layer_past cache kv_cache past state memory_state incremental_state "
    "prev_state kvcache past_kv layer_cache previous",
    Role.USE_CACHE: "use_cache return_cache",
    Role.PLACE: "start_pos offset position_offset pos_offset past_length start input_pos cache_position pos_start",
    Role.PLACES: "position_ids positions pos position pos_ids input_positions t timesteps indices",
    Role.TABLES: "position_embeddings rotary_pos_emb freqs_cis freqs rotary_emb rope cos_sin freqs_complex rotary "
    "cos sin pos_emb",
    Role.WEIGHTS: "need_weights output_attentions return_weights return_attention return_attn need_attn with_weights "
    "return_attention_weights return_attn_weights need_head_weights average_attn_weights",
    Role.BIAS: "alibi alibi_bias position_bias pos_bias rel_pos_bias relative_position_bias rel_bias",
    Role.RESIDUAL: "residual residuals shortcut",
    Role.IDS: "input_ids ids token_ids tokens idx input_tokens src_tokens decoder_input_ids",
    Role.LABELS: "labels targets target_ids label lm_labels",
    Role.LENGTH: "length seq_len n max_len size max_length sz num_positions n_position seq_length maxlen max_seq_len l "
    "context_length n_positions t_max num_tokens block_size tokens_count",
    Role.WIDTH: "d_model dim embed_dim width depth d channels hidden_size n_embd d_hid embedding_dim emb_dim head_dim "
    "dim_head d_head",
    Role.HEADS: "heads num_heads n_heads nheads n_head head_num num_attention_heads h_count",
}
ROLES: dict[str, Role] = {name: role for role, names in _NAMES.items() for name in names.split()}


def role_of(name: str) -> Role:
    """What an argument of a call is for, by its name."""
    plain = name.lower().strip("_")
    if plain in ROLES:
        return ROLES[plain]
    words = set(plain.split("_"))
    if words & {"mask", "masks"}:
        return Role.PADDING if words & {"pad", "padding"} else Role.MASK
    if words & {"cache", "past"}:
        return Role.CACHE
    if words & {"causal"}:
        return Role.CAUSAL
    if words & {"attentions", "weights"} and words & {"return", "output", "need"}:
        return Role.WEIGHTS
    return Role.OTHER


_SIZES: dict[str, str] = {
    "width": "d_model embed_dim hidden_size dim n_embd d_embed emb_dim model_dim width channels embed_size d in_dim "
    "input_dim dim_in feature_dim features model_size embedding_dim hid_dim dims in_features d_in out_dim d_out "
    "dim_out "
    "output_dim in_channels num_hiddens hidden_dim embedding_size emb_size n_dim num_features normalized_shape "
    "query_dim attention_dim attn_dim all_head_size input_size emb c in_size d_emb n_units units n_feat d_hidden embed "
    "query_size key_size value_size nx n_state context_dim kv_dim cross_dim memory_dim source_dim encoder_dim",
    "heads": "n_heads num_heads heads n_head nhead h num_attention_heads n_attn_heads nheads head_num head_count "
    "num_head "
    "encoder_attention_heads decoder_attention_heads attention_heads",
    "head": "head_dim dim_head d_head d_k d_v dim_k dim_v head_size attention_head_size d_q dim_q dk dv "
    "head_width d_kv "
    "dim_per_head rotary_dim key_dim value_dim",
    "kv_heads": "num_kv_heads n_kv_heads num_key_value_heads kv_heads n_groups num_groups kv_head n_kv_head "
    "num_kv_groups "
    "n_query_groups num_query_groups groups n_local_heads num_kv n_kv",
    "longest": "block_size max_len max_seq_len seq_len context_length max_position_embeddings n_ctx n_positions "
    "max_length max_seq_length context_size max_seq sequence_length ctx_len max_positions max_context seq_length "
    "maxlen "
    "max_relative_position n_position length context_len max_tokens max_t",
    "window": "window window_size attention_window sliding_window local_window win w local_window_size",
    "hidden": "d_ff dim_feedforward ffn_dim mlp_dim ff_dim intermediate_size d_inner pf_dim ffn_hidden ff_hidden "
    "feedforward_dim hidden_features inner_dim ffn_hidden_size encoder_ffn_dim decoder_ffn_dim n_inner d_mlp "
    "mlp_hidden "
    "forward_expansion_dim ffn_embed_dim dim_ff ff ff_size ffn_num_hiddens",
    "vocabulary": "vocab_size n_vocab num_embeddings vocab vocabulary num_tokens src_vocab_size tgt_vocab_size "
    "n_tokens",
    "layers": "n_layers num_layers n_layer num_hidden_layers layers num_blocks n_blocks encoder_layers decoder_layers",
    "rows": "batch_size",
}
SIZES: dict[str, str] = {name: size for size, names in _SIZES.items() for name in names.split()}

_PLAIN: dict[str, object] = {
    **dict.fromkeys(("layer_idx", "layer_id", "layer_index", "layer_number"), 0),
    **dict.fromkeys(("activation", "act", "hidden_act", "activation_function"), "gelu"),
    **dict.fromkeys(("base", "theta", "rope_theta", "rope_base"), 10000.0),
    **dict.fromkeys(("eps", "layer_norm_eps", "norm_eps", "epsilon", "rms_norm_eps", "layer_norm_epsilon"), 1e-5),
    **dict.fromkeys(("forward_expansion", "expansion", "mlp_ratio", "expansion_factor", "ff_mult", "mult"), 2),
    **dict.fromkeys(("device", "dtype"), None),
    "attention_type": "global",
    "batch_first": True,
    "bias": True,
    "temperature": None,
}


def size_word(name: str) -> str | None:
    """Which of the sizes a constructor's argument is, by its name."""
    return SIZES.get(name.lower().strip("_"))


def plain_value(name: str) -> object | None:
    """What an argument that is no size is usually given, by its name; None if there is no usual value."""
    plain = name.lower().strip("_")
    if re.search(r"drop|dpr|p_drop", plain) or plain in {"pdrop", "p"}:
        return 0.0
    return _PLAIN.get(plain)


def is_dropout(name: str) -> bool:
    """Whether a constructor's argument is a share of what is dropped."""
    return re.search(r"drop", name.lower()) is not None and "path" not in name.lower()


def says_causal(name: str) -> bool:
    """Whether a name says causal."""
    words = re.findall(r"[A-Z]?[a-z]+", name)
    told = {word.lower() for word in words}
    return bool(told & {"causal", "autoregressive", "gpt", "masked"})
