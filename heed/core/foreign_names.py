"""Names that other libraries use, and what to write here instead: one table for every verb and for `heed.load`.

A keyword that nobody knows is an error. If another library knows it, the error says what heed calls it; otherwise it
names the keyword that was probably meant.
"""

from __future__ import annotations

from collections.abc import Iterable

from .config import nearest
from .errors import InputError

_MASKS = "texts are padded and masked for you; masks of your own go to m(input_ids, attention_mask)"
_DRAWS = "write temperature=, top_p=, top_k= or min_p= to sample, temperature=0 for the most probable tokens"
_QUANTISE = 'write quantise="int8" or quantise="int4", as in heed.load(path, quantise="int8")'
_LOOK = 'write m.attentions("...") for attention weights, heed.look(m.model, ...) for what else a model computes'
_STATE = "what a model remembers is a value: y, state = m.model(ids, where, state); generating uses it by itself"
_SAFE = "heed runs no code of a checkpoint; leave it out"
_STEPS = "heed counts steps: write steps=; how many make an epoch is told when training begins"
_BATCH = "write batch=, which counts tokens of a step, padding included, not examples"
_SPLITS = "write data={'train': PATH, 'valid': PATH, 'test': PATH}"

FOREIGN: dict[str, str] = {
    # generating
    "max_length": "it counts the prompt, too; write max_new_tokens=, which counts what is generated",
    "max_tokens": "write max_new_tokens=",
    "max_gen_len": "write max_new_tokens=",
    "max_completion_tokens": "write max_new_tokens=",
    "min_length": "heed sets no least length: a text ends where the model ends it",
    "min_new_tokens": "heed sets no least length: a text ends where the model ends it",
    "num_samples": "write num_return_sequences=",
    "n": "write num_return_sequences=",
    "best_of": "write num_beams= and num_return_sequences=",
    "beam_size": "write num_beams=",
    "beams": "write num_beams=",
    "typical_p": _DRAWS,
    "greedy": _DRAWS,
    "early_stopping": "write config=GenerationConfig(strategy=Beam(beams=..., early=...))",
    "frequency_penalty": "write repetition=, which is above 1 to avoid what was there already",
    "presence_penalty": "write repetition=, which is above 1 to avoid what was there already",
    "no_repeat_ngram_size": "write repetition=, which is above 1 to avoid what was there already",
    "stop_strings": "write stop=, a text or a list of texts",
    "stop_sequences": "write stop=, a text or a list of texts",
    "stopping_criteria": "write stop=, a text or a list of texts",
    "eos_token_id": "the tokenizer and generation_config.json tell which tokens end a text (m.tokenizer.ends)",
    "pad_token_id": "padding is stamped, not a token, so none is needed; leave it out",
    "bos_token_id": "the tokenizer puts it where the model wants it; leave it out",
    "random_state": "write seed=",
    "random_seed": "write seed=",
    "manual_seed": "write seed=",
    "generator": "write seed=",
    "stream": "write m.generate(text, stream=True) or m.stream(text): an iterator of pieces of text",
    "streamer": "write stream=True, or m.stream(...): an iterator of pieces of text",
    "generation_config": "write config=GenerationConfig(...), or its fields as keywords",
    "prompt": "the text is the first argument: m.generate(text)",
    "inputs": "the text is the first argument: m.generate(text); ids go to m(input_ids)",
    "return_full_text": "what is generated is given without its prompt; write text + m.generate(text)",
    "skip_special_tokens": "texts come without special tokens; leave it out",
    # calling
    "input_ids": "texts go to this verb; ids go to m(input_ids, attention_mask)",
    "attention_mask": _MASKS,
    "key_padding_mask": _MASKS,
    "position_ids": "positions follow from the mask; those of your own go to m.model(ids, Where(order, position))",
    "inputs_embeds": "embeddings go to the model itself: m.model.mix(x, where)",
    "past_key_values": _STATE,
    "use_cache": _STATE,
    "output_attentions": _LOOK,
    "output_hidden_states": _LOOK,
    "return_dict": "the result has names, and is a tuple by result.to_tuple(); leave it out",
    "return_dict_in_generate": "write m.completions(...): texts, log-probabilities, why each ended, and the seed",
    "output_scores": "write m.completions(..., logprobs=True)",
    "output_logits": "write m.completions(..., logprobs=True)",
    "return_tensors": 'that is an option of m.tokenizer("...", return_tensors="pt")',
    # loading
    "device_map": 'write device="cpu", "cuda" or "auto"',
    "map_location": 'write device="cpu", "cuda" or "auto"',
    "torch_dtype": 'write dtype="float32", "bfloat16" or "float16"',
    "load_in_8bit": _QUANTISE,
    "load_in_4bit": _QUANTISE,
    "quantization": _QUANTISE,
    "quantization_config": _QUANTISE,
    "quantize": _QUANTISE,
    "trust_remote_code": _SAFE,
    "use_safetensors": "safetensors are read where there are some; leave it out",
    "local_files_only": "write offline=True",
    "low_cpu_mem_usage": "files are mapped and a model is built without memory first; leave it out",
    "attn_implementation": "the engine chooses the fastest form that is exact; leave it out",
    "use_auth_token": "huggingface_hub finds your token (HF_TOKEN); leave it out",
    "token": "huggingface_hub finds your token (HF_TOKEN); leave it out",
    "cache_dir": "huggingface_hub keeps its cache where HF_HOME says; leave it out",
    # training and evaluating
    "epochs": _STEPS,
    "num_epochs": _STEPS,
    "max_epochs": _STEPS,
    "num_train_epochs": _STEPS,
    "max_steps": "write steps=",
    "num_steps": "write steps=",
    "iters": "write steps=",
    "learning_rate": "write lr=",
    "batch_size": _BATCH,
    "per_device_train_batch_size": _BATCH,
    "block_size": "write settings={'task.context': ...}, in tokens",
    "output_dir": "write out=, the run folder to make",
    "out_dir": "write out=, the run folder to make",
    "save_dir": "write out=, the run folder to make",
    "resume_from_checkpoint": "write resume=, the run folder to go on with",
    "dataset": "write data=, the path of a file or a folder",
    "train_dataset": _SPLITS,
    "train_data": _SPLITS,
    "train_file": _SPLITS,
    "eval_dataset": _SPLITS,
    "valid_data": _SPLITS,
    "validation_data": _SPLITS,
    "val_data": _SPLITS,
    "model": "write base=, a run or a checkpoint to begin from; its shape is settings={'model.width': ...}",
    "verbose": "write quiet=True to hear nothing; otherwise what is done is told",
    "limit": "write first=, as many examples as are to be evaluated",
}


def refuse_unknown(verb: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise if a name that was given is none that `verb` knows; say what heed calls it, or what was probably meant."""
    names = sorted(known)
    for name in given:
        if name not in names:
            hint = f"; {FOREIGN[name]}" if name in FOREIGN else nearest(name, names)
            raise InputError(f"{verb} takes no {name}{hint}")
