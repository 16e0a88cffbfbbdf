"""The copy of weights in huge pages."""

import numpy as np
import pytest

from edgewise.decoder.weights import HUGE_PAGE_BYTES, copy_to_huge_pages


@pytest.mark.parametrize("size", [1, 4096, HUGE_PAGE_BYTES - 1, HUGE_PAGE_BYTES, 2 * HUGE_PAGE_BYTES + 13])
def test_the_copy_is_equal_aligned_and_read_only(size: int) -> None:
    data = np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8)
    copy = copy_to_huge_pages(data)
    assert copy.ctypes.data % HUGE_PAGE_BYTES == 0
    np.testing.assert_array_equal(copy, data)
    with pytest.raises(ValueError, match="read-only"):
        copy[0] = 1
