//! Accepts likes and answers questions about them, over HTTP and in process.
