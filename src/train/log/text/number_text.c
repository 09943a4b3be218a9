#include "train/log/text/number_text.h"

#include <math.h>
#include <stddef.h>

char *tri_whole_text(int64_t number, char *out)
{
    char digits[24];
    uint64_t rest = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
    int num = 0;
    char *to = out;
    do
        digits[num++] = (char)('0' + rest % 10);
    while (rest /= 10);
    if (number < 0)
        *to++ = '-';
    while (num > 0)
        *to++ = digits[--num];
    *to = 0;
    return out;
}

/* To the nearest whole number. A product in 64 bits of mantissa is off by some 1e-10 at the most;
 * what is that near to a half is left to others. */
static bool nearest(long double x, uint64_t *whole)
{
    *whole = (uint64_t)x;
    long double part = x - (long double)*whole;
    if (part > 0.4999L && part < 0.5001L)
        return false;
    *whole += part > 0.5L;
    return true;
}

/* 9 digits, the first of them of 10^exponent, from -4 to 8. */
static void place_digits(uint64_t digits, int exponent, char *out)
{
    char text[9];
    int num = 9;
    for (int i = 8; i >= 0; i--, digits /= 10)
        text[i] = (char)('0' + digits % 10);
    while (num > 1 && num > exponent + 1 && text[num - 1] == '0')
        num--;
    if (exponent < 0) {
        *out++ = '0';
        *out++ = '.';
        for (int i = -1; i > exponent; i--)
            *out++ = '0';
    }
    for (int i = 0; i < num; i++) {
        if (exponent >= 0 && i == exponent + 1)
            *out++ = '.';
        *out++ = text[i];
    }
    *out = 0;
}

bool tri_short_text(double number, char *out)
{
    enum { DIGITS = 9, LEAST = -4 };
    static const long double ten[] = {1e0L, 1e1L, 1e2L, 1e3L,  1e4L,  1e5L,  1e6L,
                                      1e7L, 1e8L, 1e9L, 1e10L, 1e11L, 1e12L, 1e13L};
    long double x = fabsl((long double)number);
    int exponent = DIGITS - 1;
    uint64_t digits;
    if (!(x >= 1e-4L && x < 1e9L))
        return false;
    while (exponent > LEAST && x * ten[-LEAST] < ten[exponent - LEAST])
        exponent--;
    if (!nearest(x * ten[DIGITS - 1 - exponent], &digits))
        return false;
    if (digits >= 1000000000) { /* 9.999... */
        digits /= 10;
        exponent++;
    }
    if (digits < 100000000 || exponent >= DIGITS)
        return false;
    if (number < 0)
        *out++ = '-';
    place_digits(digits, exponent, out);
    return true;
}

bool tri_thousandths_text(double number, char *out)
{
    uint64_t all;
    if (!(number >= 0 && number < 1e12) || !nearest((long double)number * 1000, &all))
        return false;
    tri_whole_text((int64_t)(all / 1000), out);
    while (*out)
        out++;
    *out++ = '.';
    for (uint64_t unit = 100; unit > 0; unit /= 10)
        *out++ = (char)('0' + all / unit % 10);
    *out = 0;
    return true;
}
