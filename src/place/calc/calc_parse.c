/* Reading what people write. A reader walks over the text; every error names the character it
 * stands at, what it found and what would do. */
#include "place/calc/calc.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

typedef struct reader {
    tri_calc *calc;
    const char *text;
    int at;
} reader;

enum { LONGEST_TEXT = 1000 };
#define MOST_ELEMENTS 1000000000000000 /* along one dim; doubles hold the products */

static const struct {
    const char *name;
    double bytes;
    tri_rate rate;
} dtypes[] = {
    {"f32", 4, TRI_RATE_F32}, {"fp32", 4, TRI_RATE_F32}, {"tf32", 4, TRI_RATE_TF32},
    {"bf16", 2, TRI_RATE_16}, {"f16", 2, TRI_RATE_16},   {"fp16", 2, TRI_RATE_16},
    {"f8", 1, TRI_RATE_FP8},  {"fp8", 1, TRI_RATE_FP8},  {"int8", 1, TRI_RATE_INT8},
};

tr_status tri_calc_init(tri_calc *calc, tr_error *err)
{
    *calc = (tri_calc){.error_at = -1};
    return tri_calc_set_dtype(calc, "bf16", err);
}

tr_status tri_calc_set_dtype(tri_calc *calc, const char *name, tr_error *err)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (strcasecmp(dtypes[i].name, name) == 0) {
            calc->dtype = dtypes[i].name;
            calc->element_bytes = dtypes[i].bytes;
            calc->rate = dtypes[i].rate;
            return TR_OK;
        }
    return tri_fail(err, TR_ERROR_INPUT,
                    "\"%.20s\" is not a type; there are f32, tf32, bf16, f16, fp8 and int8", name);
}

/* ---- characters ---- */

static tr_status complain(reader *r, int at, const char *what, const char *fix, tr_error *err)
{
    r->calc->error_at = at;
    if (!r->text[at])
        return tri_fail(err, TR_ERROR_INPUT, "at the end, character %d: %s; %s", at + 1, what, fix);
    /* Up to the next blank, without cutting a letter of several bytes. */
    int length = 1;
    while (r->text[at + length] && !isspace((unsigned char)r->text[at + length]) &&
           (length < 12 || ((unsigned char)r->text[at + length] & 0xc0) == 0x80))
        length++;
    return tri_fail(err, TR_ERROR_INPUT, "at \"%.*s\", character %d: %s; %s", length, r->text + at,
                    at + 1, what, fix);
}

static void skip_blanks(reader *r)
{
    while (isspace((unsigned char)r->text[r->at]))
        r->at++;
}

static bool take(reader *r, const char *word)
{
    skip_blanks(r);
    size_t length = strlen(word);
    if (strncmp(r->text + r->at, word, length) != 0)
        return false;
    r->at += (int)length;
    return true;
}

static bool is_first(char c)
{
    return isalpha((unsigned char)c) || c == '_';
}

/* Letters, digits and _, beginning with a letter; what is too long is an error. */
static tr_status read_name(reader *r, const char *what, const char *fix,
                           char name[static TRI_CALC_NAME], tr_error *err)
{
    skip_blanks(r);
    int from = r->at;
    if (!is_first(r->text[from]))
        return complain(r, from, what, fix, err);
    while (is_first(r->text[r->at]) || isdigit((unsigned char)r->text[r->at]))
        r->at++;
    if (r->at - from >= TRI_CALC_NAME)
        return complain(r, from, "this name is too long", "15 characters at most", err);
    memcpy(name, r->text + from, (size_t)(r->at - from));
    name[r->at - from] = 0;
    return TR_OK;
}

static tr_status read_number(reader *r, int64_t most, const char *fix, int64_t *number,
                             tr_error *err)
{
    skip_blanks(r);
    int from = r->at;
    int64_t value = 0;
    if (!isdigit((unsigned char)r->text[from]))
        return complain(r, from, "a whole number must stand here", fix, err);
    for (; isdigit((unsigned char)r->text[r->at]) || r->text[r->at] == '_'; r->at++) {
        if (r->text[r->at] != '_')
            value = 10 * value + (r->text[r->at] - '0');
        if (value > most)
            return complain(r, from, "this number is too large", fix, err);
    }
    if (value == 0)
        return complain(r, from, "a size is at least 1", fix, err);
    if (is_first(r->text[r->at]) || r->text[r->at] == '.')
        return complain(r, r->at, "sizes are plain whole numbers", fix, err);
    *number = value;
    return TR_OK;
}

static tr_status start(reader *r, tri_calc *calc, const char *text, tr_error *err)
{
    *r = (reader){calc, text, 0};
    calc->error_at = -1;
    if (strlen(text) > LONGEST_TEXT)
        return tri_fail(err, TR_ERROR_INPUT, "the text is longer than %d characters", LONGEST_TEXT);
    return TR_OK;
}

/* ---- the mesh ---- */

static int find_axis(const tri_calc *calc, const char *name, size_t length)
{
    for (int a = 0; a < calc->num_axes; a++)
        if (strlen(calc->axes[a].name) == length && memcmp(calc->axes[a].name, name, length) == 0)
            return a;
    return -1;
}

tr_status tri_calc_parse_mesh(tri_calc *calc, const char *text, tr_error *err)
{
    static const char fix[] = "a mesh reads x:4,y:8";
    reader r;
    int64_t devices = 1;
    TRI_TRY(start(&r, calc, text, err));
    calc->num_axes = 0;
    do {
        tri_calc_axis axis;
        int64_t size;
        TRI_TRY(read_name(&r, "the name of an axis must stand here", fix, axis.name, err));
        int at = r.at - (int)strlen(axis.name);
        if (find_axis(calc, axis.name, strlen(axis.name)) >= 0)
            return complain(&r, at, "this axis is there already", fix, err);
        if (calc->num_axes == TRI_CALC_AXES)
            return complain(&r, at, "there are too many axes", "8 at most", err);
        if (!take(&r, ":"))
            return complain(&r, r.at, "the size of the axis is missing", fix, err);
        at = r.at;
        TRI_TRY(read_number(&r, TRI_CALC_DEVICES - 1, "from 1 to 65535", &size, err));
        devices *= size;
        if (devices >= TRI_CALC_DEVICES)
            return complain(&r, at, "the mesh has more than 65535 devices", "make it smaller", err);
        axis.size = (int)size;
        calc->axes[calc->num_axes++] = axis;
    } while (take(&r, ","));
    skip_blanks(&r);
    return text[r.at] ? complain(&r, r.at, "this does not belong to a mesh", fix, err) : TR_OK;
}

/* "xy", "x*y", "dp*tp": names one after the other, the longest that fits first. */
static tr_status read_axes(reader *r, uint8_t cuts[static TRI_CALC_AXES], int *num, tr_error *err)
{
    const tri_calc *calc = r->calc;
    char fix[200] = "give the mesh with --mesh x:4,y:8";
    if (calc->num_axes > 0) {
        int length = snprintf(fix, sizeof fix, "the axes of the mesh are");
        for (int a = 0; a < calc->num_axes; a++)
            length += snprintf(fix + length, sizeof fix - (size_t)length, "%s %s", a ? "," : "",
                               calc->axes[a].name);
    }
    *num = 0;
    skip_blanks(r);
    do {
        size_t length = 0;
        while (is_first(r->text[r->at + (int)length]) ||
               isdigit((unsigned char)r->text[r->at + (int)length]))
            length++;
        int axis = -1;
        while (length > 0 && (axis = find_axis(calc, r->text + r->at, length)) < 0)
            length--;
        if (axis < 0)
            return complain(r, r->at, "there is no such axis in the mesh", fix, err);
        for (int i = 0; i < *num; i++)
            if (cuts[i] == axis)
                return complain(r, r->at, "this axis stands here twice", "name it once", err);
        cuts[(*num)++] = (uint8_t)axis;
        r->at += (int)length;
    } while (take(r, "*") || is_first(r->text[r->at]));
    return TR_OK;
}

tr_status tri_calc_parse_axes(tri_calc *calc, const char *text, unsigned *axes, tr_error *err)
{
    reader r;
    uint8_t cuts[TRI_CALC_AXES];
    int num;
    TRI_TRY(start(&r, calc, text, err));
    TRI_TRY(read_axes(&r, cuts, &num, err));
    skip_blanks(&r);
    if (text[r.at])
        return complain(&r, r.at, "this is not an axis", "axes read xy or dp*tp", err);
    *axes = 0;
    for (int i = 0; i < num; i++)
        *axes |= 1u << cuts[i];
    return TR_OK;
}

/* ---- letters ---- */

/* Finds or adds a letter, and gives it its size when one follows. */
static tr_status read_letter(reader *r, int *letter, tr_error *err)
{
    tri_calc *calc = r->calc;
    char name[TRI_CALC_NAME];
    int64_t size = 0;
    skip_blanks(r);
    int at = r->at;
    TRI_TRY(read_name(r, "the letter of a dim must stand here",
                      "a dim reads I, I:1024, I@x or I:1024@x", name, err));
    int found = 0;
    while (found < calc->num_letters && strcmp(calc->letters[found].name, name) != 0)
        found++;
    if (found == TRI_CALC_LETTERS)
        return complain(r, at, "there are too many letters", "12 at most", err);
    if (found == calc->num_letters) {
        memcpy(calc->letters[found].name, name, sizeof name);
        calc->letters[found].size = 0;
        calc->num_letters++;
    }
    *letter = found;
    if (!take(r, ":"))
        return TR_OK;
    skip_blanks(r);
    at = r->at;
    TRI_TRY(
        read_number(r, MOST_ELEMENTS, "a size is from 1 to 1e15, written in digits", &size, err));
    if (calc->letters[found].size != 0 && calc->letters[found].size != size)
        return complain(r, at, "this letter had another size before", "a letter has one size", err);
    calc->letters[found].size = size;
    return TR_OK;
}

tr_status tri_calc_parse_sizes(tri_calc *calc, const char *text, tr_error *err)
{
    reader r;
    int letter;
    TRI_TRY(start(&r, calc, text, err));
    do {
        skip_blanks(&r);
        int at = r.at;
        TRI_TRY(read_letter(&r, &letter, err));
        if (calc->letters[letter].size == 0)
            return complain(&r, at, "this letter has no size", "sizes read B:1024,D:4096", err);
    } while (take(&r, ","));
    skip_blanks(&r);
    return text[r.at] ? complain(&r, r.at, "this is not a size", "sizes read B:1024,D:4096", err)
                      : TR_OK;
}

/* ---- arrays ---- */

static tr_status read_dim(reader *r, tri_calc_array *array, unsigned *used, tr_error *err)
{
    tri_calc_dim *dim = &array->dims[array->rank];
    skip_blanks(r);
    if (array->rank == TRI_CALC_DIMS)
        return complain(r, r->at, "there are too many dims", "6 at most", err);
    *dim = (tri_calc_dim){.at = r->at};
    TRI_TRY(read_letter(r, &dim->letter, err));
    for (int d = 0; d < array->rank; d++)
        if (array->dims[d].letter == dim->letter)
            return complain(r, dim->at, "this letter is there twice", "each dim has its own", err);
    if (take(r, "@")) {
        int at = r->at;
        TRI_TRY(read_axes(r, dim->cuts, &dim->num_cuts, err));
        for (int i = 0; i < dim->num_cuts; i++) {
            if (*used & 1u << dim->cuts[i])
                return complain(r, at, "an axis that cuts another dim already",
                                "an axis cuts one dim of an array", err);
            *used |= 1u << dim->cuts[i];
        }
    }
    array->rank++;
    return TR_OK;
}

/* "{P:x}" or, as the scaling book writes it, "{U_x}". */
static tr_status read_terms(reader *r, tri_calc_array *array, unsigned used, tr_error *err)
{
    static const char fix[] = "terms of a sum over the axis x read {P:x} or {U_x}";
    uint8_t cuts[TRI_CALC_AXES];
    int num;
    if (!take(r, "P:") && !take(r, "U_"))
        return complain(r, r->at, "this does not say what is partial", fix, err);
    int at = r->at;
    TRI_TRY(read_axes(r, cuts, &num, err));
    for (int i = 0; i < num; i++) {
        if (used & 1u << cuts[i])
            return complain(r, at, "over an axis an array is cut or partial, not both", fix, err);
        array->terms |= 1u << cuts[i];
    }
    skip_blanks(r);
    return take(r, "}") ? TR_OK : complain(r, r->at, "a } is missing", fix, err);
}

static tr_status read_array(reader *r, tri_calc_array *array, tr_error *err)
{
    static const char fix[] = "an array reads A[I:1024@x, J]";
    unsigned used = 0;
    *array = (tri_calc_array){0};
    skip_blanks(r);
    array->at = r->at;
    TRI_TRY(read_name(r, "the name of an array must stand here", fix, array->name, err));
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) /* bf16[256, 2048] */
        if (strcmp(array->name, dtypes[i].name) == 0)
            TRI_TRY(tri_calc_set_dtype(r->calc, array->name, err));
    skip_blanks(r);
    if (!take(r, "["))
        return complain(r, r->at, "a [ must stand after the name", fix, err);
    if (!take(r, "]")) {
        do
            TRI_TRY(read_dim(r, array, &used, err));
        while (take(r, ","));
        skip_blanks(r);
        if (!take(r, "]"))
            return complain(r, r->at, "a , or ] must stand here", fix, err);
    }
    return take(r, "{") ? read_terms(r, array, used, err) : TR_OK;
}

tr_status tri_calc_parse_array(tri_calc *calc, const char *text, tri_calc_array *array,
                               tr_error *err)
{
    reader r;
    TRI_TRY(start(&r, calc, text, err));
    TRI_TRY(read_array(&r, array, err));
    skip_blanks(&r);
    return text[r.at] ? complain(&r, r.at, "this does not belong to an array", "leave it out", err)
                      : TR_OK;
}

tr_status tri_calc_parse_line(tri_calc *calc, const char *text, tri_calc_line *line, tr_error *err)
{
    static const char fix[] = "write A[...], A[...] -> A[...], or A[...] . B[...] -> C[...]";
    reader r;
    *line = (tri_calc_line){.kind = TRI_CALC_ARRAY};
    TRI_TRY(start(&r, calc, text, err));
    TRI_TRY(read_array(&r, &line->a, err));
    if (take(&r, ".") || take(&r, "*") || take(&r, "\u00b7")) {
        line->kind = TRI_CALC_PRODUCT;
        TRI_TRY(read_array(&r, &line->b, err));
    }
    if (take(&r, "->") || take(&r, "\u2192")) {
        line->has_target = true;
        if (line->kind == TRI_CALC_ARRAY)
            line->kind = TRI_CALC_MOVE;
        TRI_TRY(read_array(&r, &line->target, err));
    }
    skip_blanks(&r);
    return text[r.at] ? complain(&r, r.at, "nothing more is expected here", fix, err) : TR_OK;
}
