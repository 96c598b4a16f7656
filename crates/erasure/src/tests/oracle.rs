//! The code once more, as slow and plain as can be: nothing of the crate is used here.

/// The product of two polynomials, and what is left of it after division by 0x11d.
pub(super) fn mul(a: u8, b: u8) -> u8 {
    let mut product: u16 = 0;
    for bit in 0..8 {
        if b >> bit & 1 == 1 {
            product ^= u16::from(a) << bit;
        }
    }
    for bit in (8..16).rev() {
        if product >> bit & 1 == 1 {
            product ^= 0x11d << (bit - 8);
        }
    }
    u8::try_from(product).unwrap()
}

pub(super) fn divide(a: u8, b: u8) -> u8 {
    (0..=255).find(|q| mul(*q, b) == a && b != 0).unwrap()
}

/// The rows 2^(ij) of `m` coding units.
pub(super) fn vandermonde(k: u8, m: u8) -> Vec<Vec<u8>> {
    let mut rows = Vec::new();
    let mut base = 1;
    for _ in 0..m {
        let mut row = vec![1];
        while row.len() < usize::from(k) {
            row.push(mul(row[row.len() - 1], base));
        }
        rows.push(row);
        base = mul(base, 2);
    }
    rows
}

/// The Cauchy matrix of 32 + i and j, its columns divided by their first elements and then its rows
/// by theirs.
pub(super) fn cauchy(k: u8, m: u8) -> Vec<Vec<u8>> {
    let entry = |i: u8, j: u8| divide(1, (32 + i) ^ j);
    let mut rows: Vec<Vec<u8>> = (0..m).map(|i| (0..k).map(|j| entry(i, j)).collect()).collect();
    let first = rows[0].clone();
    for row in &mut rows {
        for (v, above) in row.iter_mut().zip(&first) {
            *v = divide(*v, *above);
        }
        let first = row[0];
        for v in row {
            *v = divide(*v, first);
        }
    }
    rows
}

/// Coding units of `len` bytes.
pub(super) fn encode(rows: &[Vec<u8>], data: &[Vec<u8>], len: usize) -> Vec<Vec<u8>> {
    let byte = |row: &Vec<u8>, at| {
        let mut sum = 0;
        for (c, unit) in row.iter().zip(data) {
            sum ^= mul(*c, unit.get(at).copied().unwrap_or(0));
        }
        sum
    };
    rows.iter()
        .map(|row| (0..len).map(|at| byte(row, at)).collect())
        .collect()
}

/// Solves linear equations by elimination: `known` are the values of the rows' sums, one slice of
/// bytes each. None if the rows are not independent.
pub(super) fn solve(mut rows: Vec<Vec<u8>>, mut known: Vec<Vec<u8>>) -> Option<Vec<Vec<u8>>> {
    for n in 0..rows.len() {
        let pivot = (n..rows.len()).find(|row| rows[*row][n] != 0)?;
        rows.swap(n, pivot);
        known.swap(n, pivot);
        let by = rows[n][n];
        rows[n]
            .iter_mut()
            .chain(&mut known[n])
            .for_each(|v| *v = divide(*v, by));
        for other in 0..rows.len() {
            let times = rows[other][n];
            if other == n || times == 0 {
                continue;
            }
            let (row, values) = (rows[n].clone(), known[n].clone());
            rows[other]
                .iter_mut()
                .zip(row)
                .for_each(|(v, o)| *v ^= mul(times, o));
            known[other]
                .iter_mut()
                .zip(values)
                .for_each(|(v, o)| *v ^= mul(times, o));
        }
    }
    Some(known)
}

/// The determinant, by Laplace's expansion.
pub(super) fn determinant(matrix: &[Vec<u8>]) -> u8 {
    let Some((first, others)) = matrix.split_first() else {
        return 1;
    };
    let mut sum = 0;
    for (column, v) in first.iter().enumerate() {
        let without = |row: &Vec<u8>| {
            let mut row = row.clone();
            row.remove(column);
            row
        };
        let minor: Vec<Vec<u8>> = others.iter().map(without).collect();
        sum ^= mul(*v, determinant(&minor));
    }
    sum
}
