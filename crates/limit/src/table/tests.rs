//! Properties of the table that need to look inside.
