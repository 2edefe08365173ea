"""Texts as streams of words, vocabularies, and encoded splits that are kept on disk."""

from __future__ import annotations

from .corpora import EOS, UNK, Corpus, load_corpus
from .vocabulary import Vocabulary, build_vocabulary, encode

__all__ = ["EOS", "UNK", "Corpus", "Vocabulary", "build_vocabulary", "encode", "load_corpus"]
