"""The main job of the repository: a small GPT trained on a flagos device and on the CPU beside it."""
