#include "base/settings/nearest.h"

#include <ctype.h>
#include <string.h>

enum { MAX_LENGTH = 64 };

static int fold(char c)
{
    return c == '-' ? '_' : tolower((unsigned char)c);
}

static int min3(int a, int b, int c)
{
    int least = a < b ? a : b;
    return least < c ? least : c;
}

int tri_edit_distance(const char *a, const char *b)
{
    int num_a = (int)strnlen(a, MAX_LENGTH), num_b = (int)strnlen(b, MAX_LENGTH);
    /* Three rows of the usual table are enough: a swap looks two rows back. */
    int rows[3][MAX_LENGTH + 1];
    for (int j = 0; j <= num_b; j++)
        rows[0][j] = j;
    for (int i = 1; i <= num_a; i++) {
        int *now = rows[i % 3], *before = rows[(i + 2) % 3], *earlier = rows[(i + 1) % 3];
        now[0] = i;
        for (int j = 1; j <= num_b; j++) {
            int differ = fold(a[i - 1]) != fold(b[j - 1]);
            now[j] = min3(before[j] + 1, now[j - 1] + 1, before[j - 1] + differ);
            if (i > 1 && j > 1 && fold(a[i - 1]) == fold(b[j - 2]) &&
                fold(a[i - 2]) == fold(b[j - 1]) && earlier[j - 2] + 1 < now[j])
                now[j] = earlier[j - 2] + 1;
        }
    }
    return rows[num_a % 3][num_b];
}

bool tri_is_slip(const char *word, const char *name)
{
    return 2 * tri_edit_distance(word, name) < (int)strlen(name);
}
