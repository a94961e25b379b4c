"""What several tests of streams draw from."""

from hypothesis import strategies as st

# Values that decode from JSON, and some that do not; keys that look like those of the protocols.
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["index", "id", "function", "name"]), inner, max_size=3)
    ),
    max_leaves=6,
)
