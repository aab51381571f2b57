//! Bars, for those who would rather see than read.

use std::fmt::Write;

/// One group of bars: what was done, and how long it took each contestant.
#[derive(Clone, Debug)]
pub struct Bars {
    pub work: String,
    pub nanos: Vec<f64>,
}

const COLOURS: [&str; 3] = ["#2a7de1", "#8b98a8", "#c9d0d9"];
const LABELS: f64 = 300.0;
const BARS: f64 = 480.0;
const THICK: f64 = 13.0;

/// A picture of the groups, with a legend of the contestants' names.
pub fn svg(names: &[&str], groups: &[Bars]) -> String {
    let longest = groups.iter().flat_map(|group| &group.nanos).fold(1.0, |longest: f64, nanos| longest.max(*nanos));
    let mut body = legend(names);
    let mut y = 44.0;
    for group in groups {
        let middle = y + group.nanos.len() as f64 * THICK / 2.0 + 4.0;
        let _ =
            writeln!(body, r#"<text x="{}" y="{middle:.0}" text-anchor="end">{}</text>"#, LABELS - 10.0, group.work);
        for (nanos, colour) in group.nanos.iter().zip(COLOURS) {
            let width = nanos / longest * BARS;
            let _ = writeln!(
                body,
                r#"<rect x="{LABELS}" y="{y:.0}" width="{width:.1}" height="{}" fill="{colour}"/>"#,
                THICK - 2.0
            );
            let _ = writeln!(
                body,
                r#"<text x="{:.1}" y="{:.0}" class="n">{nanos:.0} ns</text>"#,
                LABELS + width + 5.0,
                y + 9.0
            );
            y += THICK;
        }
        y += THICK;
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"860\" height=\"{y:.0}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <style>.n{{font-size:10px;fill:#555}}</style>\n<rect width=\"860\" height=\"{y:.0}\" fill=\"white\"/>\n{body}</svg>\n"
    )
}

fn legend(names: &[&str]) -> String {
    let mut text = String::from("<text x=\"20\" y=\"24\" font-weight=\"bold\">Nanoseconds per decision</text>\n");
    for (index, (name, colour)) in names.iter().zip(COLOURS).enumerate() {
        let x = LABELS + index as f64 * 130.0;
        let _ = writeln!(text, r#"<rect x="{x}" y="14" width="12" height="12" fill="{colour}"/>"#);
        let _ = writeln!(text, r#"<text x="{}" y="25">{name}</text>"#, x + 18.0);
    }
    text
}
