//! Text in HTML: ids and reasons are somebody else's, so nothing goes in unescaped.

/// `text` as text of an element or of a quoted attribute.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // Control characters are not allowed in a document; a mark says that there was one.
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// An id of somebody else's: set apart, so that one in Hebrew or with tricks of direction does not
/// turn the text around it.
pub fn id(text: &str) -> String {
    format!("<bdi><code>{}</code></bdi>", escape(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_markup_is_made_of_comes_through() {
        assert_eq!(escape("<b a=\"1\" c='2'>&\u{7}\n"), "&lt;b a=&quot;1&quot; c=&#39;2&#39;&gt;&amp;\u{fffd}\u{fffd}");
        assert_eq!(id("</code><script>"), "<bdi><code>&lt;/code&gt;&lt;script&gt;</code></bdi>");
    }
}
