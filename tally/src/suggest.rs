//! "Did you mean …": the nearest known word.

/// `, did you mean `x`?` where one of `known` is near `word`; else a list of all, if short.
pub fn suggestion<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    let near = known.iter().map(|k| (strsim::damerau_levenshtein(word, k), *k)).min();
    match near {
        Some((distance, best)) if distance <= (best.len() / 3).max(2) => format!("; did you mean `{best}`?"),
        _ if known.len() <= 8 => format!("; known are {}", known.join(", ")),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::suggestion;

    #[test]
    fn a_near_word_is_suggested_and_a_far_one_is_not() {
        assert_eq!(suggestion("sweep_dely", ["slot", "sweep_delay"]), "; did you mean `sweep_delay`?");
        assert_eq!(suggestion("zzzzzzzz", ["slot", "data"]), "; known are slot, data");
        let many: Vec<String> = (0..20).map(|i| format!("word{i}xxxx")).collect();
        assert_eq!(suggestion("q", many.iter().map(String::as_str)), "");
    }
}
