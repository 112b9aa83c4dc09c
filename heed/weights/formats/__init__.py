"""Files that hold weights: safetensors, Hugging Face folders, GGUF, llama2.c, pickles, heed's own layout."""
