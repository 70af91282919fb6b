"""Bytes over time: arrays in, arrays out; knows no file, no text and no database."""
