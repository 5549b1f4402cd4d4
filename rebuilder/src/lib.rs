//! Recomputes every projection from the facts, and repairs drift while traffic goes on.
