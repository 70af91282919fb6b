"""Saved queries on Apache Spark, and on servers of its protocol: Spark Connect, Sail."""
