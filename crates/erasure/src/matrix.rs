//! Square matrices, as long as is needed to invert one.

use crate::gf;

/// Row after row.
pub(crate) type Matrix = Vec<Vec<u8>>;

/// The matrix whose product with this one is the identity, by Gauss-Jordan elimination. None if it
/// is singular.
pub(crate) fn inverse(mut from: Matrix) -> Option<Matrix> {
    let n = from.len();
    let mut to: Matrix = (0..n).map(|row| unit_row(n, row)).collect();
    for column in 0..n {
        let pivot = (column..n).find(|row| from[*row][column] != 0)?;
        from.swap(column, pivot);
        to.swap(column, pivot);
        let scale = gf::inverse(from[column][column]);
        for matrix in [&mut from, &mut to] {
            for v in &mut matrix[column] {
                *v = gf::mul(*v, scale);
            }
        }
        for row in (0..n).filter(|row| *row != column) {
            let factor = from[row][column];
            for matrix in [&mut from, &mut to] {
                add_row(matrix, row, factor, column);
            }
        }
    }
    Some(to)
}

/// Adds `factor` times the row `other` to `row`, which is another one.
fn add_row(matrix: &mut Matrix, row: usize, factor: u8, other: usize) {
    if let Ok([row, other]) = matrix.get_disjoint_mut([row, other]) {
        for (v, o) in row.iter_mut().zip(other) {
            *v ^= gf::mul(factor, *o);
        }
    }
}

/// A row of `n` elements, of which only one is 1.
pub(crate) fn unit_row(n: usize, one: usize) -> Vec<u8> {
    (0..n).map(|column| u8::from(column == one)).collect()
}

/// The product of a row and a matrix.
pub(crate) fn row_product(row: &[u8], matrix: &Matrix) -> Vec<u8> {
    let mut product = vec![0; row.len()];
    for (factor, of) in row.iter().zip(matrix) {
        for (v, o) in product.iter_mut().zip(of) {
            *v ^= gf::mul(*factor, *o);
        }
    }
    product
}
