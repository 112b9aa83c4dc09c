"""What is heard: what is said in a sound, by CTC or by an encoder-decoder, and of which class a sound is."""
