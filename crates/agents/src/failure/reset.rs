//! When a limit ends, out of the many ways in which messages say so.

use std::time::Duration;

use jiff::civil::{Date, DateTime, Time, Weekday};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan as _};
use runner_core::text::cut_chars;

use super::LimitReset;

/// What stands before a moment as a number of seconds since 1970.
const EPOCH_KEYS: &[&str] = &[
    "resetsat",
    "resets_at",
    "reset_at",
    "resetat",
    "limit reached|",
];
/// What stands before a number of seconds to wait.
const SECONDS_KEYS: &[&str] = &[
    "resets_in_seconds",
    "reset_in_seconds",
    "retry_after_seconds",
    "retry-after",
    "retry_after",
];
/// What stands before a time to wait in words.
const WAIT_MARKS: &[&str] = &[
    "try again in ",
    "retry in ",
    "retry after ",
    "retrying in ",
    "resets in ",
    "reset in ",
    "available in ",
];
/// What stands before a moment in words.
const MOMENT_MARKS: &[&str] = &[
    "try again at ",
    "try again on ",
    "try again after ",
    "retry at ",
    "available again at ",
    "available again on ",
    "resets at ",
    "resets on ",
    "reset at ",
    "reset on ",
    "resets ",
];

/// A time without a date that is this little past is now, not tomorrow.
const JUST_PAST: SignedDuration = SignedDuration::from_mins(15);

/// How much of a moment that is not understood is shown.
const MAX_SHOWN_CHARS: usize = 60;

/// The first time that the text names. `lower` is `text` in lower case, byte by byte.
pub(super) fn find(text: &str, lower: &str, now: Timestamp, tz: &TimeZone) -> Option<LimitReset> {
    after_keys(lower, EPOCH_KEYS, epoch)
        .or_else(|| after_keys(lower, &["retry-after-ms"], |rest| seconds(rest, 1000.0)))
        .or_else(|| after_keys(lower, SECONDS_KEYS, |rest| seconds(rest, 1.0)))
        .or_else(|| after_marks(lower, WAIT_MARKS).find_map(|at| wait(&lower[at..])))
        .or_else(|| {
            let mut marks = after_marks(lower, MOMENT_MARKS);
            marks.find_map(|at| moment(&lower[at..], now, tz).map(LimitReset::At))
        })
        .or_else(|| after_marks(lower, MOMENT_MARKS).find_map(|at| shown(&text[at..])))
}

/// Where the text goes on after each mark.
fn after_marks<'a>(lower: &'a str, marks: &'a [&str]) -> impl Iterator<Item = usize> + 'a {
    marks.iter().flat_map(move |mark| {
        let found = lower.match_indices(mark);
        found.map(move |(at, _)| at + mark.len())
    })
}

/// What `read` makes of the value after the first of the keys for which it does.
fn after_keys(
    lower: &str,
    keys: &[&str],
    read: fn(&str) -> Option<LimitReset>,
) -> Option<LimitReset> {
    after_marks(lower, keys).find_map(|at| {
        let rest = &lower[at..];
        // As JSON, as a header or as `key=value`, also escaped inside another text.
        read(rest.trim_start_matches(['"', '\\', '\'', ':', '=', ' ', '|']))
    })
}

fn epoch(rest: &str) -> Option<LimitReset> {
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let number: i64 = rest[..digits].parse().ok()?;
    let at = match digits {
        10 => Timestamp::from_second(number).ok()?,
        13 => Timestamp::from_millisecond(number).ok()?,
        _ => return iso(first_word(rest)).map(LimitReset::At),
    };
    Some(LimitReset::At(at))
}

fn seconds(rest: &str, per_second: f64) -> Option<LimitReset> {
    let (number, _) = leading_number(rest)?;
    duration(number / per_second).map(LimitReset::In)
}

/// `3 hours 20 minutes`, `1h 20m`, `2m30s`, `1.5s`, `850ms`, `a minute`.
fn wait(rest: &str) -> Option<LimitReset> {
    let mut rest = rest.trim_start();
    let mut total = 0.0;
    let mut found = false;
    loop {
        rest = rest.trim_start_matches([' ', ',']);
        rest = rest.strip_prefix("and ").unwrap_or(rest);
        let (number, after) = match leading_number(rest) {
            Some((number, length)) => (number, &rest[length..]),
            None => match rest.strip_prefix("an ").or(rest.strip_prefix("a ")) {
                Some(after) if !found => (1.0, after),
                _ => break,
            },
        };
        let after = after.trim_start();
        let letters = after.bytes().take_while(u8::is_ascii_alphabetic).count();
        let Some(unit) = unit_seconds(&after[..letters]) else {
            break;
        };
        total += number * unit;
        found = true;
        rest = &after[letters..];
    }
    found.then(|| duration(total).map(LimitReset::In)).flatten()
}

fn unit_seconds(word: &str) -> Option<f64> {
    Some(match word {
        "ms" | "millisecond" | "milliseconds" => 0.001,
        "s" | "sec" | "secs" | "second" | "seconds" => 1.0,
        "m" | "min" | "mins" | "minute" | "minutes" => 60.0,
        "h" | "hr" | "hrs" | "hour" | "hours" => 3600.0,
        "d" | "day" | "days" => 86_400.0,
        "w" | "week" | "weeks" => 604_800.0,
        _ => return None,
    })
}

/// Waits of a year and more are no waits.
fn duration(seconds: f64) -> Option<Duration> {
    (0.0..366.0 * 86_400.0)
        .contains(&seconds)
        .then(|| Duration::from_secs_f64(seconds))
}

/// A decimal number and how long it is.
fn leading_number(text: &str) -> Option<(f64, usize)> {
    let length = text
        .bytes()
        .take_while(|byte| byte.is_ascii_digit() || *byte == b'.')
        .count();
    let number = text[..length].trim_end_matches('.');
    Some((number.parse().ok()?, number.len()))
}

/// The parts of a moment, as far as they are named.
#[derive(Default)]
struct ResetParts {
    year: Option<i16>,
    month: Option<i8>,
    day: Option<i8>,
    weekday: Option<Weekday>,
    days_ahead: Option<i64>,
    time: Option<(i8, i8, i8)>,
    afternoon: Option<bool>,
    zone: Option<TimeZone>,
}

/// A moment in words, read until a word that is no part of one.
fn moment(rest: &str, now: Timestamp, tz: &TimeZone) -> Option<Timestamp> {
    let mut parts = ResetParts::default();
    for word in rest.split_whitespace().take(12) {
        let bare = word.trim_matches(['(', ')', ',', '.', ';', '!', '"', '\'']);
        if let Some(at) = iso(bare) {
            return Some(at);
        }
        if !parts.take(bare, tz)? {
            break;
        }
        // A full stop ends the moment, unless it belongs to `p.m.`.
        if word.ends_with('.') && meridiem(bare).is_none() {
            break;
        }
    }
    parts.resolve(now, tz)
}

impl ResetParts {
    /// Takes one word. False when it is no part of a moment; `None` when it is one
    /// that makes the whole unreadable, such as an unknown time zone.
    fn take(&mut self, word: &str, tz: &TimeZone) -> Option<bool> {
        if matches!(word, "at" | "on" | "the" | "of" | "about" | "around" | "by") {
            return Some(true);
        }
        match zone(word, tz) {
            Zone::No => {}
            Zone::Unknown => return None,
            Zone::Known(zone) => {
                self.zone = Some(zone);
                return Some(true);
            }
        }
        if word == "today" {
            self.days_ahead = Some(0);
        } else if word == "tomorrow" {
            self.days_ahead = Some(1);
        } else if let Some(afternoon) = meridiem(word) {
            self.afternoon = Some(afternoon);
        } else if let Some(date) = word.parse::<Date>().ok().filter(|_| word.len() >= 10) {
            (self.year, self.month, self.day) =
                (Some(date.year()), Some(date.month()), Some(date.day()));
        } else if let Some((time, afternoon)) = clock(word) {
            self.time = Some(time);
            self.afternoon = afternoon.or(self.afternoon);
        } else if let Some(month) = month(word) {
            self.month = Some(month);
        } else if let Some(weekday) = weekday(word) {
            self.weekday = Some(weekday);
        } else if let Ok(year @ 2000..=9999) = word.parse() {
            self.year = Some(year);
        } else if let Some(day) = day(word) {
            self.day = Some(day);
        } else {
            return Some(false);
        }
        Some(true)
    }

    fn resolve(self, now: Timestamp, tz: &TimeZone) -> Option<Timestamp> {
        let tz = self.zone.as_ref().unwrap_or(tz);
        let time = match self.time {
            Some((hour, minute, second)) => {
                let hour = match self.afternoon {
                    None => hour,
                    Some(_) if !(1..=12).contains(&hour) => return None,
                    Some(afternoon) => hour % 12 + if afternoon { 12 } else { 0 },
                };
                Some(Time::new(hour, minute, second, 0).ok()?)
            }
            // `3 pm`: what looked like a day was the hour.
            None => match (self.afternoon, self.month, self.day) {
                (Some(afternoon), None, Some(hour @ 1..=12)) => {
                    let hour = hour % 12 + if afternoon { 12 } else { 0 };
                    Some(Time::new(hour, 0, 0, 0).ok()?)
                }
                (Some(_), ..) => return None,
                (None, ..) => None,
            },
        };
        let today = tz.to_datetime(now).date();
        let at = |date: Date| -> Option<Timestamp> {
            let moment = DateTime::from_parts(date, time.unwrap_or(Time::midnight()));
            tz.to_timestamp(moment).ok()
        };
        if let Some(month) = self.month {
            let day = self.day?;
            if let Some(year) = self.year {
                return at(Date::new(year, month, day).ok()?);
            }
            // Limits are days or weeks long, so the nearest such date is meant.
            let years = [-1, 0, 1].map(|step| today.year() + step);
            return years
                .into_iter()
                .filter_map(|year| at(Date::new(year, month, day).ok()?))
                .min_by_key(|moment| moment.duration_since(now).abs());
        }
        if let Some(days) = self.days_ahead {
            return at(today.checked_add(days.days()).ok()?);
        }
        if let Some(weekday) = self.weekday {
            let days = today.weekday().until(weekday);
            let moment = at(today.checked_add(i64::from(days).days()).ok()?)?;
            return if moment < now - JUST_PAST {
                at(today.checked_add((i64::from(days) + 7).days()).ok()?)
            } else {
                Some(moment)
            };
        }
        time?;
        let moment = at(today)?;
        if moment < now - JUST_PAST {
            at(today.tomorrow().ok()?)
        } else {
            Some(moment)
        }
    }
}

/// A moment with its offset, as machines write it. Words are in lower case here.
fn iso(word: &str) -> Option<Timestamp> {
    word.to_ascii_uppercase().parse().ok()
}

/// What a word says about the time zone.
enum Zone {
    /// Nothing.
    No,
    /// This one.
    Known(TimeZone),
    /// One that cannot be known here.
    Unknown,
}

/// The time zone that a word names. Names of places are those of the machine that both
/// we and the CLI run on, so the only one that can stand for anything is our own.
fn zone(word: &str, tz: &TimeZone) -> Zone {
    if matches!(word, "utc" | "gmt" | "z" | "etc/utc" | "etc/gmt") {
        return Zone::Known(TimeZone::UTC);
    }
    match word.split_once('/') {
        Some((area, place))
            if !place.is_empty() && area.starts_with(|c: char| c.is_ascii_alphabetic()) =>
        {
            let own = tz.iana_name();
            if own.is_none_or(|own| own.eq_ignore_ascii_case(word)) {
                Zone::Known(tz.clone())
            } else {
                Zone::Unknown
            }
        }
        _ => Zone::No,
    }
}

fn meridiem(word: &str) -> Option<bool> {
    match word {
        "am" | "a.m" | "a.m." => Some(false),
        "pm" | "p.m" | "p.m." => Some(true),
        _ => None,
    }
}

/// `15:45`, `3:45pm`, `3pm`; not a bare number.
fn clock(word: &str) -> Option<((i8, i8, i8), Option<bool>)> {
    let letters = word.find(|c: char| c.is_ascii_alphabetic());
    let (digits, suffix) = word.split_at(letters.unwrap_or(word.len()));
    let afternoon = match suffix {
        "" => None,
        _ => Some(meridiem(suffix)?),
    };
    let mut fields = digits.split(':').map(str::parse::<i8>);
    let hour = fields.next()?.ok()?;
    let minute = fields.next();
    let second = fields.next();
    if fields.next().is_some() || (minute.is_none() && afternoon.is_none()) {
        return None;
    }
    let or_zero = |field: Option<Result<i8, _>>| match field {
        Some(field) => field.ok().filter(|value| (0..60).contains(value)),
        None => Some(0),
    };
    let (minute, second) = (or_zero(minute)?, or_zero(second)?);
    (0..24)
        .contains(&hour)
        .then_some(((hour, minute, second), afternoon))
}

fn month(word: &str) -> Option<i8> {
    const MONTHS: [&str; 12] = [
        "january",
        "february",
        "march",
        "april",
        "may",
        "june",
        "july",
        "august",
        "september",
        "october",
        "november",
        "december",
    ];
    abbreviated(word, &MONTHS).and_then(|index| i8::try_from(index + 1).ok())
}

fn weekday(word: &str) -> Option<Weekday> {
    const DAYS: [&str; 7] = [
        "monday",
        "tuesday",
        "wednesday",
        "thursday",
        "friday",
        "saturday",
        "sunday",
    ];
    let number = i8::try_from(abbreviated(word, &DAYS)? + 1).ok()?;
    Weekday::from_monday_one_offset(number).ok()
}

/// The name that the word is, or begins with at least three letters.
fn abbreviated(word: &str, names: &[&str]) -> Option<usize> {
    if word.len() < 3 {
        return None;
    }
    names.iter().position(|name| name.starts_with(word))
}

/// `17` and `17th`.
fn day(word: &str) -> Option<i8> {
    let digits = ["st", "nd", "rd", "th"]
        .iter()
        .find_map(|suffix| word.strip_suffix(suffix))
        .unwrap_or(word);
    digits.parse().ok().filter(|day| (1..=31).contains(day))
}

/// The moment as the CLI put it, if it looks like one at all.
fn shown(text: &str) -> Option<LimitReset> {
    let end = text.find(['·', '∙', '•', ';', '\n']).unwrap_or(text.len());
    let sentence = text[..end].split(". ").next().unwrap_or_default();
    let sentence = cut_chars(sentence.trim().trim_end_matches('.'), MAX_SHOWN_CHARS);
    sentence
        .contains(|c: char| c.is_ascii_digit())
        .then(|| LimitReset::LocalText(sentence.into_owned()))
}

fn first_word(text: &str) -> &str {
    let end = text.find(|c: char| c.is_whitespace() || "\"',}\\".contains(c));
    &text[..end.unwrap_or(text.len())]
}
