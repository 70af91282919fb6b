"""A Parquet dataset, which many write and many read: layout, writing, reading, compaction."""
