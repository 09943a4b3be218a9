# The rules of check_sources.sh, which reads the list of exceptions, the sources, ARCHITECTURE.md and
# the symbols of the built objects into it, in this order. What is read relies on clang-format: a
# function opens with a brace of its own line, everything else on the line that it belongs to.

BEGIN {
    # The order in which data flows (ARCHITECTURE.md); a new folder of src/ gets its place here.
    order = "base graph model optim mesh collective place recompute schedule program compile device " \
            "comm run sim data ckpt train serve plugin config api search cli"
    num = split(order, names, " ")
    for (i = 1; i <= num; i++)
        rank[names[i]] = i
    sub(/^ /, "", rules)
    num = split(rules, names, " ")
    for (i = 1; i <= num; i++)
        on[names[i]] = 1
    most_lines["src"] = most_lines["include"] = 500
    most_files = 40
    most_body = 60
    most_words = 120
    bad = 0
}

function complain(at, why)
{
    print at ": " why
    bad++
}

# Whether the list lets this be.
function excepted(rule, name)
{
    if (!((rule, name) in exception))
        return 0
    needed[rule, name] = 1
    return 1
}

# ---- the list: RULE NAME REASON ----

FILENAME ~ /check_sources\.txt$/ {
    if (/^#/ || NF == 0)
        next
    if (NF < 3)
        complain(FILENAME ":" FNR, "write the rule, what is excepted from it, and why")
    exception[$1, $2] = FILENAME ":" FNR
    next
}

# ---- symbols: what objects have and want ----

FILENAME ~ /symbols$/ {
    if (/:$/) {
        object++
        built_cuda = built_cuda || /\.cu\.o/
    } else if ($2 == "U")
        wanted[$1] = 1
    else if ($2 ~ /^[TDBRC]$/ && $1 !~ /^(tr_|main$|__)/)
        has[$1] = plain($1)
    next
}

# The name of a C++ function without a namespace: _Z9tri_thingi is tri_thing. Of the
# others, and of what nvcc adds: "".
function plain(symbol,  name)
{
    if (symbol !~ /^_/)
        return symbol
    if (symbol !~ /^_Z[0-9]/)
        return ""
    name = substr(symbol, 3)
    sub(/^[0-9]+/, "", name)
    return name ~ /^__/ ? "" : substr(name, 1, substr(symbol, 3) + 0)
}

# ---- paragraphs ----

function end_paragraph()
{
    if (paragraph_words > most_words)
        complain("ARCHITECTURE.md:" paragraph_line, "a paragraph of " paragraph_words " words; " \
                 most_words " are the most: make it two")
    paragraph_words = 0
}

FILENAME == "ARCHITECTURE.md" {
    if (!on["paragraphs"])
        next
    if (/^ *```/) {
        end_paragraph()
        fenced = !fenced
    } else if (fenced || /^ *$/ || /^#/ || /^ *\|/ || (/^    / && !paragraph_words))
        end_paragraph()
    else {
        if (/^ *([-*]|[0-9]+\.) /) {
            end_paragraph()
            $1 = ""
            $0 = $0
        }
        if (paragraph_words == 0)
            paragraph_line = FNR
        paragraph_words += NF
    }
    next
}

# ---- sources ----

function end_file()
{
    limit = folder in most_lines ? most_lines[folder] : 1000
    if (on["sizes"] && file_lines >= limit && !excepted("sizes", file))
        complain(file ":" limit, file_lines " lines; a file here has fewer than " limit ": split it")
}

FNR == 1 {
    if (file != "")
        end_file()
    file = FILENAME
    num = split(file, path, "/")
    directory = file
    sub(/\/[^\/]*$/, "", directory)
    files_of[directory]++
    folder = path[1]
    layer = folder == "src" ? path[2] : ""
    in_library = folder == "src" || folder == "include"
    in_comment = in_function = 0
    in_typedef = ""
    signature = previous = ""
    num_files++
}

{
    file_lines = FNR
}

# ---- includes ----

layer != "" && /^[ \t]*#[ \t]*include[ \t]*"/ {
    check_include()
    next
}

function check_include(  target, to)
{
    if (!on["includes"])
        return
    match($0, /"[^"]*"/)
    target = substr($0, RSTART + 1, RLENGTH - 2)
    at = FILENAME ":" FNR
    to = target
    sub(/\/.*/, "", to)
    if (!(layer in rank))
        complain(at, "the folder src/" layer " has no place in the order of tools/check_sources.awk")
    else if (target ~ /^\.\.?\// || target !~ /\//)
        complain(at, "includes \"" target "\"; write the path from src/")
    else if (to == "trireme")
        return
    else if (!(to in rank))
        complain(at, "includes \"" target "\" of the unknown folder " to)
    else if (rank[to] > rank[layer])
        complain(at, "includes \"" target "\", but " layer " comes before " to)
    else if (layer == "device" && to != "device" && to != "base" && to != "graph")
        complain(at, "includes \"" target "\"; device code uses base and graph only")
}

# Code without strings and comments.
{
    code = $0
    if (code ~ /["\/*]/) {
        gsub(/'"'/, "' '", code)
        gsub(/"([^"\\]|\\.)*"/, "\"\"", code)
        if (in_comment) {
            if (!sub(/^.*\*\//, "", code))
                next
            in_comment = 0
        }
        sub(/\/\/.*/, "", code)
        gsub(/\/\*[^*]*\*+([^\/*][^*]*\*+)*\//, "", code)
        if (sub(/\/\*.*/, "", code))
            in_comment = 1
    } else if (in_comment)
        next
    sub(/[ \t]+$/, "", code)
}

code == "" {
    signature = ""
    next
}

# ---- functions ----

code ~ /^[ \t]*\{$/ && !in_function && previous ~ /\)( const)?$/ {
    in_function = 1
    body_line = FNR
    closing = code
    sub(/\{/, "}", closing)
    gsub(/__[a-z_]+__ ?\(\(?[^()]*\)?\)/, "", signature)
    match(signature, /[A-Za-z0-9_]+\(/)
    name = substr(signature, RSTART, RLENGTH - 1)
    num_functions++
    function_at = FILENAME ":" signature_line
    if (in_library) {
        defined_at[name] = function_at
        defined_in[name] = FILENAME
        if (FILENAME ~ /\.h$/)
            is_inline[name] = 1
    }
}

# What else other files may see: tables and their like.
in_library && !in_function && code ~ /^[A-Za-z][A-Za-z0-9_ *]*[ *]tri_[a-z0-9_]+(\[[^=]*\])* =/ && code !~ /^(static|typedef) / {
    name = code
    sub(/(\[[^=]*\])* =.*/, "", name)
    sub(/.*[ *]/, "", name)
    defined_at[name] = FILENAME ":" FNR
    defined_in[name] = FILENAME
}

# Declarations of functions.
in_library && !in_function && FILENAME ~ /\.h$/ && code ~ /^[a-z][A-Za-z0-9_ *]*[ *]tri_[a-z0-9_]+\(/ && code !~ /^static / {
    name = code
    sub(/\(.*/, "", name)
    sub(/.*[ *]/, "", name)
    declared_at[name] = FILENAME ":" FNR
}

in_function && code == closing {
    body = FNR - body_line - 1
    if (on["sizes"] && body >= most_body && !excepted("sizes", name))
        complain(function_at, name "() has " body " lines; a function has fewer than " most_body ": split it")
    in_function = 0
    signature = ""
}

{
    previous = code
    if (code ~ /[;{}]$/ || code ~ /^#/)
        signature = ""
    else {
        if (signature == "")
            signature_line = FNR
        signature = signature " " code
    }
}

# ---- types ----

# A name has as many meanings as there are files that define it; an alias means what it stands for.
function define_type(name, line, alias,  meaning, at)
{
    if (name == "")
        return
    at = FILENAME ":" line
    if (!in_library) {
        if (name ~ /^tri?_/)
            foreign[at] = name
        return
    }
    meaning = alias == "" ? FILENAME : alias
    if (!(name in meaning_of)) {
        meaning_of[name] = meaning
        type_at[name] = at
    } else if (meaning_of[name] != meaning && !excepted("names", name))
        complain(at, "the type " name " is another one at " type_at[name] \
                 ": give one of them a name of its own")
}

function last_name(text)
{
    sub(/[ \t]*(__attribute__.*)?;.*$/, "", text)
    sub(/\[.*/, "", text)
    sub(/^.*[ \t*}]/, "", text)
    return text
}

!on["names"] && !on["dead"] {
    next
}

on["names"] && code ~ /^[ \t]*(typedef )?(struct|enum|union|class) ?([^;=()]*[^;=() ])? ?\{/ {
    head = code
    sub(/[ \t]*(:[^{]*)?\{.*/, "", head)
    is_typedef = head ~ /^typedef /
    tag = ""
    if (head !~ /(struct|enum|union|class)$/) {
        tag = head
        sub(/^.* /, "", tag)
    }
    define_type(tag, FNR, "")
    if (is_typedef && code ~ /\}.*;$/) {
        name = last_name(code)
        if (name != tag)
            define_type(name, FNR, tag)
    } else if (is_typedef) {
        in_typedef = tag == "" ? "-" : tag
        typedef_line = FNR
    }
}

on["names"] && in_typedef != "" && code ~ /^\}/ {
    name = last_name(code)
    if (name != in_typedef)
        define_type(name, typedef_line, in_typedef == "-" ? "" : in_typedef)
    in_typedef = ""
}

on["names"] && code ~ /^(typedef|using) / && code !~ /\{/ {
    alias = code
    if (code ~ /\(\*[a-z]/) {
        name = code
        sub(/^[^(]*\(\*/, "", name)
        sub(/\).*/, "", name)
    } else if (code ~ /^using/)
        name = $2
    else {
        name = last_name(code)
        sub(/;.*/, "", alias)
        num = split(alias, part, " ")
        if (num == 4 && part[2] ~ /^(struct|enum|union)$/)
            alias = part[3] # a struct of that name, declared here
    }
    if (alias != name)
        define_type(name, FNR, alias)
}

# ---- words ----

on["dead"] {
    num = split(code, part, /[^A-Za-z0-9_]+/)
    for (i = 1; i <= num; i++) {
        word = part[i]
        if (in_library) {
            uses[word]++
            if (FILENAME ~ /^src\/device\/cuda\//)
                in_cuda[word] = 1
            if (!((word, FILENAME) in own))
                own[word, FILENAME] = 0
            own[word, FILENAME]++
        } else
            in_tests[word] = 1
    }
}

# ---- what only the whole shows ----

function check_dead(symbol, name,  at, here)
{
    if (name == "")
        return
    at = name in defined_at ? defined_at[name] : "src"
    if (name !~ /^tri_/)
        complain(at, name " is seen by all files: begin it with tri_, or make it static")
    if (symbol in wanted || (!built_cuda && name in in_cuda))
        return
    here = own[name, defined_in[name]] > 1
    if ((here && name in in_tests) || excepted("dead", name))
        return
    if (here)
        complain(at, "only its own file uses " name ": make it static")
    else if (name in in_tests)
        complain(at, "only tests use " name ": remove it, or say in tools/check_sources.txt why it is there")
    else
        complain(at, "nothing uses " name ": remove it")
}

END {
    end_file()
    end_paragraph()
    for (directory in files_of)
        if (on["sizes"] && directory ~ /^src/ && files_of[directory] >= most_files)
            complain(directory, files_of[directory] " files; a folder has fewer than " most_files ": divide it")
    for (at in foreign)
        if (foreign[at] in type_at)
            complain(at, "the type " foreign[at] " is the library's (" type_at[foreign[at]] \
                     "): give this one another name")
    if (on["names"])
        for (name in type_at)
            if (name ~ /^tri?_/ && name in defined_at)
                complain(defined_at[name], "this " name " has the name of a type (" type_at[name] \
                         "): give one of them another")
    if (on["dead"]) {
        for (name in has)
            check_dead(name, has[name])
        for (name in declared_at)
            if (!(name in has || name in defined_at))
                complain(declared_at[name], "declares " name ", which is nowhere: remove it")
        for (name in is_inline)
            if (uses[name] < 2 && !excepted("dead", name))
                complain(defined_at[name], "nothing of the library uses " name ": remove it")
    }
    for (key in exception) {
        split(key, part, SUBSEP)
        if (on[part[1]] && !(key in needed))
            complain(exception[key], "nothing needs this line any more: remove it")
    }
    if (bad == 0)
        print num_files " files with " num_functions " functions keep the rules: " rules
    exit bad > 0
}
