"""Names of the vocabularies that `preproc.criteo` writes."""

import urllib.parse

from dataloading.spec.data_set_files import VOCABULARY_FOLDER


def text_file(feature: str) -> str:
    """Returns the vocabulary of a feature, `.tsv`, relative to the data set.

    Odd characters in the name are as in a URL.
    """
    return f"{VOCABULARY_FOLDER}/{urllib.parse.quote(feature, safe='')}.tsv"
