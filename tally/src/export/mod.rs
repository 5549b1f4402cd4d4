//! `tally export`: facts as lines of JSON, in key order, page by page.

mod lines;
mod out;

use std::{io::IsTerminal, path::Path, time::Duration};

use hyper::header;
use rebuilder::{ExportFilter, ExportPlace, export_page};
use schema::Namespace;
use store::clock::Stopwatch;

pub use lines::{lines, place_of, text_of};
use out::Out;

use crate::{
    cli::ExportArgs,
    client::{CallError, Client, segment},
    config::Config,
    failure::{Failure, OK},
    output::grouped,
    progress::Shown,
    serve::{Node, Opening},
};

/// Facts of one page.
pub const PAGE: usize = 5000;
/// Longest pause before a page is asked for again.
const MAX_PAUSE: Duration = Duration::from_secs(5);

/// `tally export`.
pub async fn run(args: ExportArgs) -> Result<u8, Failure> {
    Namespace::parse(&args.namespace).map_err(|e| Failure::usage(format!("--namespace: {e}")))?;
    let mut out = Out::open(&args.file)?;
    let lines = match &args.data {
        Some(data) => offline(&args, data, &mut out).await?,
        None => online(&args, &mut out).await?,
    };
    out.finish()?;
    eprintln!("{} lines", grouped(lines));
    Ok(OK)
}

async fn online(args: &ExportArgs, out: &mut Out) -> Result<u64, Failure> {
    let client = Client::new(args.url.as_deref().unwrap_or("http://127.0.0.1:8080"), 1)?;
    let kind = args.kind.as_deref().map(|kind| format!("&kind={}", segment(kind))).unwrap_or_default();
    let base =
        format!("/v1/ops/export?namespace={}{kind}&all_registers={}&limit={PAGE}", segment(&args.namespace), args.all_registers);
    let mut cursor = args.cursor.clone();
    let (mut written, mut shown) = (0, shown(args));
    loop {
        let at = cursor.as_deref().map(|c| format!("&cursor={}", segment(c))).unwrap_or_default();
        let page = page(&client, &format!("{base}{at}"), Duration::from_secs(args.patience)).await;
        let (bytes, next) = page.map_err(|error| {
            let failure = Failure::from(error);
            let on = cursor.as_deref().map(|c| format!("; go on with --cursor {c}")).unwrap_or_default();
            Failure { message: format!("{} ({} lines were written{on})", failure.message, grouped(written)), ..failure }
        })?;
        written += bytes.iter().filter(|b| **b == b'\n').count() as u64;
        if !out.write(&bytes)? {
            return Ok(written);
        }
        update(&mut shown, written);
        match next {
            None => return Ok(written),
            next => cursor = next,
        }
    }
}

/// `None`: the lines themselves go to the terminal, and a bar would be in their way.
fn shown(args: &ExportArgs) -> Option<Shown> {
    let to_terminal = args.file.as_os_str() == "-" && std::io::stdout().is_terminal();
    (!to_terminal).then(|| Shown::new(None))
}

fn update(shown: &mut Option<Shown>, written: u64) {
    if let Some(shown) = shown {
        shown.update(written, || format!("{} lines", grouped(written)));
    }
}

/// One page and the cursor of the next, asked for until `patience` is over.
async fn page(client: &Client, path: &str, patience: Duration) -> Result<(Vec<u8>, Option<String>), CallError> {
    let watch = Stopwatch::start();
    let mut pause = Duration::from_millis(100);
    let mut told = false;
    loop {
        match client.page(path).await {
            Err(error) if error.is_transient() && watch.elapsed() < patience => {
                if let CallError::Away { base, reason } = &error
                    && !std::mem::replace(&mut told, true)
                {
                    let seconds = patience.as_secs();
                    eprintln!("tally: cannot reach {base} ({reason}); trying again for {seconds}s, end with Ctrl-C");
                }
                tokio::time::sleep(error.retry_after().unwrap_or(pause).min(MAX_PAUSE)).await;
                pause = (pause * 2).min(MAX_PAUSE);
            }
            other => return other,
        }
    }
}

/// Opens the store here and changes nothing in it.
async fn offline(args: &ExportArgs, data: &Path, out: &mut Out) -> Result<u64, Failure> {
    let config = Config::from_flags(&[("data".to_owned(), data.display().to_string())])?;
    let node = Node::open(&config, Opening::Check).await?;
    let kinds = &node.protocol.settings().kinds;
    let kind = args.kind.as_deref().map(|name| {
        let near = || crate::suggest::suggestion(name, kinds.iter().map(|k| k.name.as_str()));
        kinds.get(name).map(|k| k.name.clone()).ok_or_else(|| Failure::usage(format!("there is no kind `{name}`{}", near())))
    });
    let filter = ExportFilter { namespace: args.namespace.clone(), kind: kind.transpose()? };
    let wrong = || Failure::usage("--cursor is not one that an export gave out");
    let mut place = match &args.cursor {
        Some(text) => place_of(text).ok_or_else(wrong)?,
        None => ExportPlace::default(),
    };
    let failed = |e: store::StoreError| Failure::unreachable(e.to_string());
    let (mut written, mut shown) = (0, shown(args));
    loop {
        let page = export_page(&node.protocol, &filter, place, PAGE).await.map_err(failed)?;
        let text = lines(kinds, &page.facts, args.all_registers);
        written += text.matches('\n').count() as u64;
        match (out.write(text.as_bytes())?, page.next) {
            (true, Some(next)) => {
                place = next;
                update(&mut shown, written);
            }
            _ => break,
        }
    }
    node.engine.close().await.map_err(failed)?;
    Ok(written)
}

/// The cursor in a `Link` header with `rel="next"`.
fn next_of(link: &str) -> Option<String> {
    let (address, rest) = link.strip_prefix('<')?.split_once('>')?;
    rest.contains("rel=\"next\"").then_some(())?;
    let (_, query) = address.split_once('?')?;
    query.split('&').find_map(|pair| pair.strip_prefix("cursor=")).map(str::to_owned)
}

impl Client {
    /// GET of a page; its bytes, and the cursor of the next.
    async fn page(&self, path: &str) -> Result<(Vec<u8>, Option<String>), CallError> {
        let (head, body) = self.answer(hyper::Method::GET, path, bytes::Bytes::new()).await?;
        let link = head.headers.get(header::LINK).and_then(|v| v.to_str().ok()).and_then(next_of);
        Ok((body.to_vec(), link))
    }
}
