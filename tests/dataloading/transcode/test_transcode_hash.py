"""`--hash_buckets`: the ids of a text never change."""

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from dataloading.spec.feature_spec import FeatureSpec
from dataloading.transcode import __main__ as transcode
from dataloading.transcode.encode.vocabulary import bucket_ids

# From the xxHash project's own tests and pages: XXH64 with seed 0.
KNOWN = {
    "": 0xEF46DB3751D8E999,
    "a": 0xD24EC4F1A98C6E5B,
    "abc": 0x44BC2CF5AD770999,
    "The quick brown fox jumps over the lazy dog": 0x0B242D361FDA71BC,
}


def test_known_hashes():
    texts = pa.array([*KNOWN, None, "abc"])
    for buckets in (1, 7, 1000, 2**62):
        expected = [h % buckets for h in (*KNOWN.values(), KNOWN[""], KNOWN["abc"])]
        assert bucket_ids(texts, buckets).tolist() == expected


def test_ids_in_a_data_set(tmp_path):
    """The id is that of the value's text: of a number its digits, of a missing value nothing."""
    chunk = {"type": "parquet", "features": ["word", "number"], "files": ["a.parquet"]}
    spec = {
        "feature_spec": {"word": {"hotness": 2}, "number": {"dtype": "int32"}},
        "source_spec": {"test": [chunk]},
        "channel_spec": {"categorical": ["word", "number"]},
    }
    table = pa.table({"word": [["a", "abc"], ["abc", None]], "number": [12, -12]})
    pq.write_table(table, tmp_path / "a.parquet")
    (tmp_path / "feature_spec.yaml").write_text(yaml.safe_dump(spec))
    flags = [f"--input={tmp_path}", f"--output={tmp_path / 'out'}"]
    assert transcode.main([*flags, "--hash_buckets=word=1000,number=50"]) == 0
    data_set = FeatureSpec.from_yaml(tmp_path / "out/feature_spec.yaml")
    assert data_set.cardinalities("categorical") == [1000, 50]
    assert data_set.metadata["transcode"]["hash_buckets"] == {"word": 1000, "number": 50}
    words = (tmp_path / "out/test/cat_0.bin").read_bytes()
    expected = [KNOWN[text] % 1000 for text in ("a", "abc", "abc", "")]
    assert words == b"".join(i.to_bytes(2, "little") for i in expected)
    numbers = (tmp_path / "out/test/cat_1.bin").read_bytes()
    expected = bucket_ids(pa.array(["12", "-12"]), 50).tolist()
    assert numbers == b"".join(i.to_bytes(4, "little") for i in expected)
