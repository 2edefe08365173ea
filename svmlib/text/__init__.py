"""Texts as streams of words, vocabularies, and encoded splits that are kept on disk."""

from __future__ import annotations

from .cooccurrence import Cooccurrence, cooccurrence
from .corpora import load_corpus
from .corpus import EOS, UNK, Corpus, tokenize
from .vocabulary import Vocabulary, build_vocabulary, encode

__all__ = [
    "EOS",
    "UNK",
    "Cooccurrence",
    "Corpus",
    "Vocabulary",
    "build_vocabulary",
    "cooccurrence",
    "encode",
    "load_corpus",
    "tokenize",
]
