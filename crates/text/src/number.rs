//! Numbers as C's library prints them.

/// A number as `%.{digits}g` prints it: at most so many significant digits, no zeros at the end.
/// Six are what a C++ stream has, seventeen what JSON has.
pub fn general(v: f64, digits: usize) -> String {
    if !v.is_finite() {
        let sign = if v.is_sign_negative() { "-" } else { "" };
        return format!("{sign}{}", if v.is_nan() { "nan" } else { "inf" });
    }
    let digits = digits.clamp(1, 17);
    // The exponent is that after rounding to the digits wanted.
    let scientific = format!("{v:.*e}", digits - 1);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let places = i32::try_from(digits).unwrap_or(i32::MAX);
    if (-4..places).contains(&exponent) {
        let decimals = usize::try_from(places - 1 - exponent).unwrap_or(0);
        return trimmed(&format!("{v:.decimals$}")).to_owned();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", trimmed(mantissa), exponent.abs())
}

/// Without zeros at the end of the fraction.
fn trimmed(number: &str) -> &str {
    match number.contains('.') {
        true => number.trim_end_matches('0').trim_end_matches('.'),
        false => number,
    }
}

/// A share as the tables print it: 0, or two decimals of a percent.
pub fn percent(share: f64) -> String {
    let p = share * 100.0;
    if p == 0.0 {
        "0".to_owned()
    } else {
        format!("{p:.2}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made with `printf` of glibc.
    #[test]
    fn numbers_print_as_c_prints_them() {
        for (v, digits, text) in [
            (0.0, 6, "0"),
            (-0.0, 6, "-0"),
            (-1.0, 6, "-1"),
            (0.95, 17, "0.94999999999999996"),
            (f64::from(0.95f32), 17, "0.94999998807907104"),
            (0.95, 6, "0.95"),
            (1.0, 17, "1"),
            (3.66667, 6, "3.66667"),
            (4.050_78, 6, "4.05078"),
            (0.004_265_6, 6, "0.0042656"),
            (9.2876e-5, 6, "9.2876e-05"),
            (0.000_278_937, 6, "0.000278937"),
            (131.521_9, 6, "131.522"),
            (1_234_567.0, 6, "1.23457e+06"),
            (999_999.5, 6, "1e+06"),
            (13412.0, 6, "13412"),
            (0.000_01, 6, "1e-05"),
            (1_234_567_890_123.0, 10, "1.23456789e+12"),
            (9_999_999_999.9, 10, "1e+10"),
            (0.0001, 10, "0.0001"),
            (f64::INFINITY, 6, "inf"),
            (f64::NEG_INFINITY, 6, "-inf"),
            (f64::NAN.copysign(1.0), 6, "nan"),
            (f64::NAN.copysign(-1.0), 6, "-nan"),
        ] {
            assert_eq!(general(v, digits), text, "{v}");
        }
    }
}
