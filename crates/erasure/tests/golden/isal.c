/* Writes what ISA-L makes of a few shapes: for each one "k m", then m lines of a row of coefficients
 * and the coding unit, both in hex. Data unit j has at offset i the byte (i * 31 + j * 17 + i * j) % 256.
 *
 *     cc isal.c -lisal && ./a.out > isal.txt      (Debian: libisal-dev 2.30)
 */
#include <isa-l.h>
#include <stdio.h>

enum { LEN = 24 };

static void hex(const unsigned char *bytes, int n)
{
    for (int i = 0; i < n; i++)
        printf("%02x", bytes[i]);
}

static void shape(int k, int m)
{
    static unsigned char matrix[32 * 32], tables[32 * 32 * 32], units[32][LEN];
    unsigned char *at[32];
    for (int j = 0; j < k + m; j++) {
        at[j] = units[j];
        for (int i = 0; i < LEN && j < k; i++)
            units[j][i] = i * 31 + j * 17 + i * j;
    }
    gf_gen_rs_matrix(matrix, k + m, k);
    ec_init_tables(k, m, matrix + k * k, tables);
    ec_encode_data(LEN, k, m, tables, at, at + k);
    printf("%d %d\n", k, m);
    for (int i = 0; i < m; i++) {
        hex(matrix + k * (k + i), k);
        putchar(' ');
        hex(units[k + i], LEN);
        putchar('\n');
    }
}

int main(void)
{
    static const int shapes[][2] = { {2, 1}, {2, 2}, {4, 2}, {6, 3}, {8, 3}, {8, 4}, {21, 4}, {29, 3} };
    for (unsigned i = 0; i < sizeof shapes / sizeof *shapes; i++)
        shape(shapes[i][0], shapes[i][1]);
}
