"""Saved queries on Apache Spark, and on what speaks its protocol: Spark Connect servers, Sail."""
