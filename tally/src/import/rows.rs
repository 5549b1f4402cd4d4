//! From one line to one fact.

use schema::{KindName, Member, Micros, Namespace, TargetKey};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::{
    cli::{ImportArgs, RowFormat, TimeUnit},
    failure::Failure,
    suggest::suggestion,
};

/// What a column may be.
const NAMES: [&str; 8] = ["user", "target", "at", "type", "choice", "kind", "register", "hidden"];
/// The keys of lines that `tally export` writes.
const EXPORTED: [&str; 7] = ["user", "target", "kind", "choice", "register", "hidden", "at"];

/// A fact as the API takes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Row {
    /// Id of the target.
    pub target: String,
    /// Kind.
    pub kind: String,
    /// Id of the member.
    pub user: String,
    /// The choice; `Some(None)` withdraws, `None` is a line of another register.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub choice: Option<Option<String>>,
    /// The reason of a register that hides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub register: Option<String>,
    /// Whether that register hides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hidden: Option<bool>,
    /// When, in microseconds, as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
}

/// What a line says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// A fact.
    Fact(Row),
    /// A row that `--where` does not want.
    Filtered,
    /// Nothing.
    Blank,
}

/// A column: its name, and the key that holds it in NDJSON.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Column {
    name: Option<&'static str>,
    key: String,
}

/// How lines are read.
#[derive(Debug, Clone)]
pub struct Layout {
    namespace: Namespace,
    kind: String,
    choice: Option<String>,
    format: RowFormat,
    delimiter: char,
    columns: Vec<Column>,
    filters: Vec<(usize, String)>,
    unit: Micros,
}

impl Layout {
    /// From the command line.
    pub fn new(args: &ImportArgs) -> Result<Self, Failure> {
        let namespace = Namespace::parse(&args.namespace).map_err(|e| Failure::usage(format!("--namespace: {e}")))?;
        KindName::parse(&args.kind).map_err(|e| Failure::usage(format!("--kind: {e}")))?;
        let name = args.file.file_name().map(|n| n.to_string_lossy().to_lowercase()).unwrap_or_default();
        let name = name.strip_suffix(".gz").unwrap_or(&name).to_owned();
        let ndjson = [".ndjson", ".jsonl"].iter().any(|e| name.ends_with(e));
        let format = args.format.unwrap_or(if ndjson { RowFormat::Ndjson } else { RowFormat::Delimited });
        let delimiter = match args.delimiter.as_deref() {
            None if name.ends_with(".tsv") => '\t',
            None => ',',
            Some("tab" | "\\t") => '\t',
            Some("space") => ' ',
            Some(text) => {
                let mut chars = text.chars();
                let only = chars.next().filter(|c| chars.next().is_none() && c.is_ascii() && !"\"\r\n".contains(*c));
                only.ok_or_else(|| {
                    Failure::usage(format!("--delimiter is `{text}`, expected one ASCII character, `tab` or `space`"))
                })?
            }
        };
        let exported = format == RowFormat::Tally;
        if exported && (!args.columns.is_empty() || args.choice.is_some()) {
            return Err(Failure::usage("--format tally says what the columns are; leave --columns and --choice out"));
        }
        let columns = if exported { columns(&EXPORTED.map(str::to_owned), format) } else { columns(&args.columns, format) }?;
        let mut filters = Vec::new();
        for filter in &args.filters {
            let (name, value) =
                filter.split_once('=').ok_or_else(|| Failure::usage(format!("--where is `{filter}`, expected as type=RT")))?;
            let at = columns.iter().position(|c| c.name == Some(name));
            let known = columns.iter().filter_map(|c| c.name);
            filters.push((
                at.ok_or_else(|| Failure::usage(format!("--where: there is no column `{name}`{}", suggestion(name, known))))?,
                value.to_owned(),
            ));
        }
        let unit = match args.time_unit {
            _ if exported => 1,
            TimeUnit::S => 1_000_000,
            TimeUnit::Ms => 1_000,
            TimeUnit::Us => 1,
        };
        Ok(Self { namespace, kind: args.kind.clone(), choice: args.choice.clone(), format, delimiter, columns, filters, unit })
    }

    /// Whether each row says when it happened: the order of rows then does not matter.
    pub fn has_times(&self) -> bool {
        self.columns.iter().any(|c| c.name == Some("at"))
    }

    /// Everything that decides what a line means, for comparing two runs.
    pub fn fingerprint(&self) -> String {
        let columns: Vec<String> = self.columns.iter().map(|c| format!("{}={}", c.name.unwrap_or("-"), c.key)).collect();
        let (kind, choice, filters) = (&self.kind, self.choice.as_deref().unwrap_or(""), &self.filters);
        format!(
            "{} {kind} {choice} {:?} {:?} {} {filters:?} {}",
            self.namespace,
            self.format,
            self.delimiter,
            columns.join(","),
            self.unit
        )
    }

    /// Reads one line, without its line end.
    pub fn read(&self, line: &[u8]) -> Result<Line, String> {
        let text = std::str::from_utf8(line).map_err(|_| "not valid UTF-8")?;
        let text = text.strip_suffix('\r').unwrap_or(text);
        if text.trim().is_empty() {
            return Ok(Line::Blank);
        }
        let fields = match self.format {
            RowFormat::Delimited => self.split(text)?,
            RowFormat::Ndjson | RowFormat::Tally => self.pick(text)?,
        };
        if self.filters.iter().any(|(at, wanted)| fields[*at].as_deref() != Some(wanted)) {
            return Ok(Line::Filtered);
        }
        let field = |name: &str| {
            let at = self.columns.iter().position(|c| c.name == Some(name));
            at.and_then(|at| fields[at].clone())
        };
        let has = |name: &str| self.columns.iter().any(|c| c.name == Some(name));
        let required = |name: &str| field(name).filter(|v| !v.is_empty()).ok_or_else(|| format!("`{name}` is missing"));
        let (target, user) = (required("target")?, required("user")?);
        TargetKey::new(&self.namespace, &target).map_err(|e| format!("`target`: {e}"))?;
        Member::parse(&user).map_err(|e| format!("`user`: {e}"))?;
        let kind = if has("kind") { required("kind")? } else { self.kind.clone() };
        let register = field("register");
        let hidden = match (&register, field("hidden").as_deref()) {
            (None, None) => None,
            (Some(_), Some("true")) => Some(true),
            (Some(_), Some("false")) => Some(false),
            _ => return Err("`register` and `hidden` (true or false) belong together".to_owned()),
        };
        // An empty or null choice withdraws; where rows have none, all pick the same.
        let choice = match has("choice") {
            true => field("choice").filter(|c| !c.is_empty()),
            false => Some(self.choice.clone().unwrap_or_else(|| kind.clone())),
        };
        let at = has("at").then(|| required("at")).transpose()?.map(|at| self.time(&at)).transpose()?;
        let choice = register.is_none().then_some(choice);
        Ok(Line::Fact(Row { target, kind, user, choice, register, hidden, at: at.map(|at| at.to_string()) }))
    }

    fn time(&self, text: &str) -> Result<Micros, String> {
        let number: Option<Micros> = text.parse().ok();
        let at = number.and_then(|n| n.checked_mul(self.unit)).filter(|&at| at > 0);
        at.ok_or_else(|| format!("`at` is `{}`, expected a whole number of --time-unit since 1970", clip(text)))
    }

    /// Fields of a delimited line, one for each column.
    fn split(&self, text: &str) -> Result<Vec<Option<String>>, String> {
        let fields: Vec<String> = if text.contains('"') {
            let delimiter = u8::try_from(self.delimiter).expect("checked to be ASCII");
            let mut reader = csv::ReaderBuilder::new()
                .delimiter(delimiter)
                .has_headers(false)
                .flexible(true)
                .buffer_capacity(text.len())
                .from_reader(text.as_bytes());
            let mut record = csv::StringRecord::new();
            reader.read_record(&mut record).map_err(|_| "the quotes do not match")?;
            record.iter().map(str::to_owned).collect()
        } else if self.delimiter == ' ' {
            text.split(' ').filter(|f| !f.is_empty()).map(str::to_owned).collect()
        } else {
            text.split(self.delimiter).map(str::to_owned).collect()
        };
        if fields.len() < self.columns.len() {
            return Err(format!("{} fields, {} columns are expected", fields.len(), self.columns.len()));
        }
        Ok(fields.into_iter().take(self.columns.len()).map(Some).collect())
    }

    /// Values of an NDJSON object, one for each column.
    fn pick(&self, text: &str) -> Result<Vec<Option<String>>, String> {
        let object: Map<String, Value> = serde_json::from_str(text).map_err(|e| format!("not a JSON object: {e}"))?;
        let value = |column: &Column| match object.get(&column.key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(Value::Number(number)) => Ok(Some(number.to_string())),
            Some(Value::Bool(value)) => Ok(Some(value.to_string())),
            Some(_) => Err(format!("`{}` is neither text, number nor true or false", column.key)),
        };
        self.columns.iter().map(value).collect()
    }
}

fn columns(names: &[String], format: RowFormat) -> Result<Vec<Column>, Failure> {
    let default = ["user", "target"].map(str::to_owned);
    let names = if names.is_empty() { &default[..] } else { names };
    let mut columns: Vec<Column> = Vec::with_capacity(names.len());
    for text in names {
        let (name, key) = match text.split_once('=') {
            Some((name, key)) if format == RowFormat::Ndjson && !key.is_empty() => (name, key),
            Some(_) => return Err(Failure::usage(format!("--columns: `{text}`: keys are renamed in NDJSON only"))),
            None => (text.as_str(), text.as_str()),
        };
        if ["-", "_"].contains(&name) {
            columns.push(Column { name: None, key: key.to_owned() });
            continue;
        }
        let known = NAMES.iter().find(|n| **n == name);
        let known = known.ok_or_else(|| Failure::usage(format!("--columns: `{name}` is unknown{}", suggestion(name, NAMES))))?;
        if columns.iter().any(|c| c.name == Some(known)) {
            return Err(Failure::usage(format!("--columns: `{name}` is named twice")));
        }
        columns.push(Column { name: Some(known), key: key.to_owned() });
    }
    for needed in ["user", "target"] {
        if !columns.iter().any(|c| c.name == Some(needed)) {
            return Err(Failure::usage(format!("--columns: `{needed}` is missing")));
        }
    }
    Ok(columns)
}

/// A text short enough for a message.
pub fn clip(text: &str) -> String {
    let mut out: String = text.chars().take(60).collect();
    if out.len() < text.len() {
        out.push('…');
    }
    out
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    fn layout(args: &str) -> Result<Layout, String> {
        let line = format!("tally|import|{args}|--namespace|n");
        let cli = Cli::try_parse_from(line.split('|')).map_err(|e| e.to_string())?;
        let Command::Import(args) = cli.command else { unreachable!("an import") };
        Layout::new(&args).map_err(|e| e.message)
    }

    fn row(layout: &Layout, line: &str) -> Result<(String, String, String, String, String), String> {
        let none = || "none".to_owned();
        match layout.read(line.as_bytes())? {
            Line::Fact(r) => Ok((r.user, r.target, r.kind, r.choice.flatten().unwrap_or_else(none), r.at.unwrap_or_else(none))),
            Line::Filtered => Err("filtered".into()),
            Line::Blank => Err("blank".into()),
        }
    }

    fn fact(
        user: &str,
        target: &str,
        kind: &str,
        choice: &str,
        at: &str,
    ) -> Result<(String, String, String, String, String), String> {
        Ok((user.into(), target.into(), kind.into(), choice.into(), at.into()))
    }

    #[test]
    fn higgs_rows_are_read_as_documented() {
        let l = layout("h.txt.gz|--columns|user,target,at,type|--delimiter| |--time-unit|s|--where|type=RT").unwrap();
        assert_eq!(row(&l, "376989 50329 1341101181 RT"), fact("376989", "50329", "like", "like", "1341101181000000"));
        assert_eq!(row(&l, "376989 50329 1341101181 RT\r"), fact("376989", "50329", "like", "like", "1341101181000000"));
        assert_eq!(row(&l, "26375 168366 1341101183 MT"), Err("filtered".into()));
        assert_eq!(row(&l, "  "), Err("blank".into()));
        assert_eq!(row(&l, "1 2 3"), Err("3 fields, 4 columns are expected".into()));
        assert_eq!(row(&l, "1  2  x RT"), Err("`at` is `x`, expected a whole number of --time-unit since 1970".into()));
        assert!(row(&l, "1 2 99999999999999999 RT").is_err(), "overflows microseconds");
        assert!(row(&l, "1 2 -5 RT").is_err());
    }

    #[test]
    fn quoted_csv_tabs_and_skipped_columns_are_read() {
        let l = layout("x.csv|--columns|-,user,_,target,choice|--kind|reaction").unwrap();
        assert_eq!(row(&l, "a,u1,b,p1,love"), fact("u1", "p1", "reaction", "love", "none"));
        assert_eq!(row(&l, r#"a,"u,""1",b,"p 1",love"#), fact("u,\"1", "p 1", "reaction", "love", "none"));
        assert_eq!(row(&l, "a,u1,b,p1,"), fact("u1", "p1", "reaction", "none", "none"));
        assert_eq!(row(&l, "a,u1,b,p1,love,more"), fact("u1", "p1", "reaction", "love", "none"));
        assert_eq!(row(&l, "a,,b,p1,love"), Err("`user` is missing".into()));
        let l = layout("x.tsv|--columns|user,target,kind").unwrap();
        assert_eq!(row(&l, "u1\tp1\tbookmark"), fact("u1", "p1", "bookmark", "bookmark", "none"));
        assert!(row(&l, "u1\tp1\t").is_err());
    }

    #[test]
    fn ndjson_takes_keys_numbers_null_and_renamed_keys() {
        let l = layout("x.jsonl.gz|--columns|user=actor,target,choice,at|--time-unit|ms|--kind|reaction").unwrap();
        let line = r#"{"actor":7,"target":"p1","choice":"sad","at":"12","more":[1]}"#;
        assert_eq!(row(&l, line), fact("7", "p1", "reaction", "sad", "12000"));
        let line = r#"{"actor":"7","target":"p1","choice":null,"at":12}"#;
        assert_eq!(row(&l, line), fact("7", "p1", "reaction", "none", "12000"));
        assert!(row(&l, r#"{"actor":"7","target":["p1"],"at":1}"#).is_err());
        assert!(row(&l, r#"[1]"#).is_err());
        assert!(row(&l, r#"{"actor":"7","target":"p1","at":1.5}"#).is_err());
    }

    #[test]
    fn ids_that_the_server_would_refuse_are_bad_rows() {
        let l = layout("x.csv").unwrap();
        assert!(row(&l, &format!("{},p1", "u".repeat(129))).is_err());
        assert!(row(&l, "u\u{7},p1").is_err());
        assert_eq!(l.read(b"u\xff,p1"), Err("not valid UTF-8".into()));
    }

    #[test]
    fn wrong_options_are_refused_by_name() {
        for (args, part) in [
            ("x.csv|--columns|usr,target", "did you mean `user`"),
            ("x.csv|--columns|user", "`target` is missing"),
            ("x.csv|--columns|user,target,user", "named twice"),
            ("x.csv|--columns|user=a,target", "NDJSON only"),
            ("x.csv|--where|type=RT", "no column `type`"),
            ("x.csv|--where|type", "expected as type=RT"),
            ("x.csv|--delimiter|ab", "one ASCII character"),
            ("x.csv|--kind|Like", "--kind"),
        ] {
            let error = layout(args).map(|_| ()).unwrap_err();
            assert!(error.contains(part), "{args}: {error}");
        }
    }
}
