"""What the names of a call's arguments mean: by the whole name, then by its words.

`pre_q`, `inputs_kv`, `encoder_feats`: what a name means decides what is passed, and a trial decides whether that was
right.
"""

from __future__ import annotations

from collections.abc import Set
from enum import StrEnum

from .sizes import cut, listed


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
    HEIGHT = "height"  # of an image whose tokens come as a stream
    BREADTH = "breadth"
    SHAPE = "shape"  # both, as a pair
    LOOKED = "looked"  # weights of an earlier step
    PAIRS = "pairs"  # a vector for every pair of tokens
    EDGES = "edges"  # of a graph: from whom to whom
    SCALE = "scale"  # what scores are multiplied by
    VECTOR = "vector"  # one of each row, as of a step of time: what norms are modulated by
    OWNER = "owner"  # the module for which a function attends
    DROPPED = "dropped"  # a share of what is dropped
    OTHER = "other"


_NAMES: dict[Role, str] = {
    Role.QUERY: "q query queries xq x_q q_in query_states query_input query_layer query_tensor tgt_q inputs_q",
    Role.KEY: "k key keys xk x_k k_in key_states key_input key_layer key_tensor inputs_k",
    Role.VALUE: "v value values val xv x_v v_in value_states value_input value_layer value_tensor inputs_v",
    Role.INPUT: "x inp input inputs hidden_states hidden src tgt embeddings embeds emb h seq sequence tokens_embedded "
    "xs feats features fmap latents z data input_tensor tensor src_seq embedded hidden_state target tgt_seq",
    Role.SOURCE: "memory context ctx encoder_hidden_states encoder_output encoder_out enc_output enc_out enc "
    "source y kv "
    "encoder_states encoder_memory cond key_value_states memory_states cross",
    Role.PADDING: "key_padding_mask src_key_padding_mask padding_mask pad_mask tgt_key_padding_mask "
    "encoder_padding_mask self_attn_padding_mask key_mask kv_mask memory_key_padding_mask src_padding_mask valid_mask",
    Role.MASK: "mask attn_mask attention_mask src_mask tgt_mask self_mask slf_attn_mask causal_mask bias attn_bias "
    "attention_bias trg_mask look_ahead_mask visible allowed input_mask self_attn_mask",
    Role.LENGTHS: "valid_lens lengths valid_lengths seq_lens lens seqlens key_lengths valid_len sequence_lengths",
    Role.CAUSAL: "is_causal causal autoregressive use_causal_mask apply_causal_mask causal_masking",
    Role.CACHE: "past_key_value past_key_values layer_past cache kv_cache past state memory_state incremental_state "
    "prev_state kvcache past_kv layer_cache previous",
    Role.USE_CACHE: "use_cache return_cache",
    Role.PLACE: "start_pos offset position_offset pos_offset past_length start input_pos cache_position pos_start",
    Role.PLACES: "position_ids positions pos position pos_ids input_positions t timesteps indices "
    "coords coors coordinates xyz points",
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
    Role.HEIGHT: "height",
    Role.SCALE: "scale scaling softmax_scale sm_scale attn_scale scale_factor",
    Role.OWNER: "module",
    Role.VECTOR: "temb time_emb time_embed time_embedding t_emb timestep_emb vec adaln_input pooled_projections "
    "conditioning_vector time_cond",
    Role.DROPPED: "dropout dropout_p attn_dropout dropout_rate attention_dropout attn_drop",
    Role.SHAPE: "hw x_size hw_shape size_hw spatial_shape input_resolution resolution",
    Role.HEADS: "heads num_heads n_heads nheads n_head head_num num_attention_heads h_count",
}
ROLES: dict[str, Role] = {name: role for role, names in _NAMES.items() for name in names.split()}


_STREAMS = listed("x input inputs inp hidden feat feats feature features fmap embeds emb seq src tgt trg")
_GIVES = frozenset({"return", "output", "need", "with", "get", "give"})
_LOOKED_AT = listed("key keys kv memory mem src source enc encoder valid hist history user context input")
_EARLIER = listed("prev previous last cat cum cumulative cumulated accumulated old")
_SHAPES = listed("resolution hw shape shapes")
_CALLED = listed("fn func function mod callback hook")
_NOT_TENSORS = listed("pos position positions mask masks bias len lens lengths proj scale drop dropout")


def role_of(name: str) -> Role:
    """What an argument of a call is for, by its name."""
    if name in ("H", "W"):
        return Role.HEIGHT if name == "H" else Role.BREADTH
    plain = name.lower().strip("_")
    if plain in ROLES:
        return ROLES[plain]
    words = frozenset(cut(name))
    if says_called(name):
        return Role.OTHER
    return _beside(words) or _tensor(words) or Role.OTHER


def _beside(words: Set[str]) -> Role | None:
    """What is passed beside the tensors that are attended."""
    rules: tuple[tuple[bool, Role], ...] = (
        (bool(words & {"attentions", "attention", "attn", "weights"} and words & _GIVES), Role.WEIGHTS),
        (
            bool(words & _EARLIER and words & {"attn", "att", "attention", "weights", "alignment", "alignments"}),
            Role.LOOKED,
        ),
        (bool(words & {"edge", "edges"} and words & {"index", "list", "idx"}), Role.EDGES),
        (bool(words & {"pair", "pairs", "pairwise", "edge", "edges"} and not words & {"index", "mask"}), Role.PAIRS),
        (bool(words & {"mask", "masks"} and words & {"pad", "padding"}), Role.PADDING),
        (bool(words & {"mask", "masks", "adj", "adjacency"}), Role.MASK),
        (bool(words & {"len", "length"} and words & _LOOKED_AT), Role.LENGTHS),
        (bool(words & {"lens", "lengths", "seqlens", "ilens", "olens", "hlens", "xlens"}), Role.LENGTHS),
        (bool(words & {"cache", "past", "caches"}), Role.CACHE),
        ("causal" in words, Role.CAUSAL),
        (bool(words & {"cos", "sin", "freqs", "freq", "rope", "rotary", "cis"}), Role.TABLES),
        (bool(words & {"bias"}), Role.BIAS),
        (bool(words & _SHAPES or words >= {"x", "size"} or words >= {"feat", "size"}), Role.SHAPE),
        (bool(words & {"position", "positions", "pos"} and words & {"ids", "idx", "index"}), Role.PLACES),
    )
    return next((role for holds, role in rules if holds), None)


def _tensor(words: Set[str]) -> Role | None:
    """Queries, keys, values, streams and sources, whatever stands before or after the word."""
    if words & _NOT_TENSORS:
        return None
    keys, values = words & {"k", "key", "keys"}, words & {"v", "val", "value", "values"}
    rules: tuple[tuple[bool, Role], ...] = (
        ("kv" in words or bool(keys and values), Role.SOURCE),
        (bool(words & {"q", "query", "queries"}), Role.QUERY),
        (bool(keys), Role.KEY),
        (bool(values), Role.VALUE),
        (bool(words & {"context", "ctx", "memory", "encoder", "enc", "cond", "source", "media", "cross"}), Role.SOURCE),
        (bool(words & (_STREAMS | {"dec", "decoder"})), Role.INPUT),
    )
    return next((role for holds, role in rules if holds), None)


def says_called(name: str) -> bool:
    """Whether a name says that it is called: a function is no mask, whatever it is for."""
    return bool(set(cut(name)) & _CALLED)


def says_causal(name: str) -> bool:
    """Whether a name says causal."""
    return bool(set(cut(name)) & {"causal", "autoregressive", "gpt", "masked"})
