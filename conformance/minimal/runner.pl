#!/usr/bin/perl
# A runner of commands in Perl, with nothing but what Perl brings along.
#
#   perl runner.pl <temp root>/async-cfg-<runId>.json
#
# Written from spec/ and docs/implementing-a-runner.md alone; it shares nothing with the library. It owns the files of one run from `proceed` on.
#
# In order: the configuration is read and removed; the start-up conversation is led (in a revival under the lease of the session); the run is
# told as running; groups of commands are worked off by one loop that reads outputs, the inbox, the deadline and the status; the end is told
# in the order of RS-STEP-07. What a crash leaves is what that order leaves: never an end that is told before its result, never a candidate
# before the account, never an acknowledgement before the release.
#
# Texts of others are kept byte for byte: a document is patched at the places of the own members (RS-RMW-01), and rewritten nowhere else.
# It looks at process groups through /proc. Where there is none, no process tree is vouched for (RS-STEP-06).
use strict;
use warnings;
no warnings qw(surrogate nonchar non_unicode);    # texts of others hold all of them
use Cwd ();
use Digest::SHA qw(sha256_hex);
use Encode ();
use Errno qw(ENOENT EEXIST ENOSPC EDQUOT EMFILE ENFILE EAGAIN EINTR ENOTEMPTY ESRCH);
use Fcntl qw(:DEFAULT :mode);
use IO::Handle ();
use POSIX ();
use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC sleep);

use constant {
    WORD_TIME => 30,              # s, for each word of the launcher (RS-START-48)
    END_TIME  => 3,               # s, from the request to end to the kill (RS-STEP-01)
    OUTPUT    => 16 * 1024 * 1024,    # bytes, from which the output of a step is moved aside
    LOG       => 50 * 1024 * 1024,    # the same of the log of the run
    MESSAGE   => 64 * 1024,
    RECORD    => 1024 * 1024,
    STATUS    => 16 * 1024 * 1024,
};
use constant { SAFE => 0, ORDERED => 1, DURABLE => 2 };    # levels of 12.2

# ---- JSON: texts, not values, so that what is not ours keeps its spelling -------------------------------------------------------------

# A value is a string, a Raw (a number, a word, or text of others), an ARRAY, or an Obj: [key, value, ...] in its order.
sub raw  { bless \(my $t = shift), 'Raw' }
sub num  { raw(sprintf '%d', shift) }
sub true { raw('true') }
sub null { raw('null') }
sub obj  { bless [@_], 'Obj' }

sub quote {
    my $s = shift;
    $s =~ s/(["\\])/\\$1/g;
    $s =~ s/([\x00-\x1f\x7f\x{d800}-\x{dfff}])/sprintf '\\u%04x', ord $1/ge;
    return '"' . bytes($s) . '"';
}

# Two spaces of indentation and no newline at the end (RS-ATOM-10); without $in all in one line.
sub emit {
    my ($v, $in) = @_;
    return quote($v) unless ref $v;
    return $$v if ref $v eq 'Raw';
    my $deeper = defined $in ? "$in  " : undef;
    my ($gap, $end, $colon) = defined $in ? ("\n$deeper", "\n$in", ': ') : ('', '', ':');
    my @parts;
    if (ref $v eq 'Obj') {
        for (my $i = 0; $i < @$v; $i += 2) { push @parts, quote($v->[$i]) . $colon . emit($v->[ $i + 1 ], $deeper) }
    } else {
        @parts = map { emit($_, $deeper) } @$v;
    }
    my ($open, $close) = ref $v eq 'Obj' ? ('{', '}') : ('[', ']');
    return $open . $close unless @parts;
    return $open . $gap . join(",$gap", @parts) . $end . $close;
}

# A parsed value is [kind, what, from, to]: kind is one of s n w o a, from and to are its place in the text. An object is a list of
# [key, value] in order; a later member of the same key wins (RS-JSON-05), and the document is marked.
sub parse {
    my $bytes = shift;
    die "it is not UTF-8\n" unless defined decoded($bytes);
    my $doubled = 0;
    pos($bytes) = 0;
    my ($value, $string, $object, $array);
    my $space = sub { $bytes =~ /\G[ \t\r\n]*/gc };
    $string = sub {
        $bytes =~ /\G"((?:[^"\\\x00-\x1f]|\\["\\\/bfnrt]|\\u[0-9A-Fa-f]{4})*)"/gc or die "a string is damaged\n";
        my $s = decoded($1);
        my %short = (b => "\b", f => "\f", n => "\n", r => "\r", t => "\t");
        $s =~ s{\\u([dD][89abAB]..)\\u([dD][c-fC-F]..)|\\u(....)|\\(.)}
               {defined $1 ? chr(0x10000 + ((hex($1) - 0xd800) << 10) + hex($2) - 0xdc00) : defined $3 ? chr hex $3 : $short{$4} // $4}ge;
        return $s;
    };
    $value = sub {
        my $depth = shift;
        die "it is nested too deeply\n" if $depth > 128;    # RS-JSON-09
        $space->();
        my $from = pos($bytes) // 0;
        my ($kind, $what);
        if    (substr($bytes, $from, 1) eq '"') { ($kind, $what) = ('s', $string->()) }
        elsif ($bytes =~ /\G(-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)/gc) { ($kind, $what) = ('n', $1) }
        elsif ($bytes =~ /\G(true|false|null)/gc) { ($kind, $what) = ('w', $1) }
        elsif ($bytes =~ /\G\{/gc) { ($kind, $what) = ('o', $object->($depth)) }
        elsif ($bytes =~ /\G\[/gc) { ($kind, $what) = ('a', $array->($depth)) }
        else                       { die "it is no JSON\n" }
        return [ $kind, $what, $from, pos $bytes ];
    };
    $object = sub {
        my $depth = shift;
        my (@members, %seen);
        $space->();
        return \@members if $bytes =~ /\G\}/gc;
        while (1) {
            $space->();
            my $key = $string->();
            $doubled = 1 if $seen{$key}++;
            $space->();
            $bytes =~ /\G:/gc or die "it is no JSON\n";
            push @members, [ $key, $value->($depth + 1) ];
            $space->();
            last if $bytes =~ /\G\}/gc;
            $bytes =~ /\G,/gc or die "it is no JSON\n";
        }
        return \@members;
    };
    $array = sub {
        my $depth = shift;
        my @elements;
        $space->();
        return \@elements if $bytes =~ /\G\]/gc;
        while (1) {
            push @elements, $value->($depth + 1);
            $space->();
            last if $bytes =~ /\G\]/gc;
            $bytes =~ /\G,/gc or die "it is no JSON\n";
        }
        return \@elements;
    };
    my $top = eval { $value->(0) };
    my $wrong = $@;
    if ($top) { $space->(); $wrong = "something follows it\n" if (pos($bytes) // 0) != length $bytes }
    undef $_ for $value, $string, $object, $array;    # the closures name each other
    die $wrong if $wrong;
    return { top => $top, text => $bytes, doubled => $doubled };
}

# The one object of a document (RS-JSON-08).
sub parse_object {
    my $doc = parse(shift);
    die "it is no object\n" unless $doc->{top}[0] eq 'o';
    return $doc;
}

# A member of an object by kind; an absent one and one of another kind are undef. `null` counts as absent.
sub member {
    my ($object, $key, $kind) = @_;
    return undef unless $object && $object->[0] eq 'o';
    my $found;
    for (@{ $object->[1] }) { $found = $_->[1] if $_->[0] eq $key }
    return undef unless $found;
    return $found unless defined $kind;
    return undef unless $found->[0] eq $kind;
    return $kind eq 'o' ? $found : $found->[1];
}
sub has { my $m = member(@_[ 0, 1 ]); return $m && !($m->[0] eq 'w' && $m->[1] eq 'null') }
sub text_of { my ($doc, $node) = @_; return substr $doc->{text}, $node->[2], $node->[3] - $node->[2] }

# The text of an object with members set (a value) or taken out (undef), all else byte for byte.
sub patch {
    my ($doc, $object, $in, @set) = @_;
    my ($text, $base) = (text_of($doc, $object), $object->[2]);
    my %set = @set;
    my @spans;
    for my $i (0 .. $#{ $object->[1] }) {
        my ($key, $value) = @{ $object->[1][$i] };
        next unless exists $set{$key};
        my $new = delete $set{$key};
        # `null` in the place of what is taken out: no comma has to go with it, and absent and null are one here.
        push @spans, [ $value->[2] - $base, $value->[3] - $base, defined $new ? emit($new, "$in  ") : 'null' ];
    }
    for (reverse @spans) { substr($text, $_->[0], $_->[1] - $_->[0]) = $_->[2] }
    my @more;
    for (my $i = 0; $i < @set; $i += 2) {
        push @more, quote($set[$i]) . ': ' . emit($set[ $i + 1 ], "$in  ") if exists $set{ $set[$i] } && defined $set[ $i + 1 ];
    }
    return $text unless @more;
    my $comma = @{ $object->[1] } ? ',' : '';
    my $lines = $comma . join(',', map { "\n$in  $_" } @more);
    $text =~ s/[ \t\r\n]*\}\z//;
    return "$text$lines\n$in}";
}

# ---- names --------------------------------------------------------------------------------------------------------------------------

# Bytes of a text, for the system and for a hash; an unpaired surrogate counts as U+FFFD.
sub bytes { my $t = shift; $t =~ s/[\x{d800}-\x{dfff}]/\x{fffd}/g; utf8::encode($t); return $t }

# The text of bytes, or undef. Perl's own strict decoder refuses noncharacters, which are text; its lax one takes what is none.
sub decoded { my $b = shift; return utf8::decode($b) && $b !~ /[\x{d800}-\x{dfff}]|[^\x{0}-\x{10ffff}]/ ? $b : undef }
sub text    { my $b = shift; return decoded($b) // Encode::decode('UTF-8', $b) }
sub now_ms { int(Time::HiRes::time() * 1000) }
sub clock  { clock_gettime(CLOCK_MONOTONIC) }

sub random_hex {
    my $n = shift;
    open my $f, '<:raw', '/dev/urandom' or die "/dev/urandom: $!\n";
    read($f, my $b, $n) == $n or die "/dev/urandom: too short\n";
    return unpack 'H*', $b;
}

sub uuid {
    my $h = random_hex(16);
    substr($h, 12, 1) = '4';
    substr($h, 16, 1) = substr('89ab', hex(substr $h, 16, 1) & 3, 1);
    return join '-', unpack 'A8 A4 A4 A4 A12', $h;
}

# RS-LAYOUT-22, RS-LAYOUT-23, RS-ATOM-02.
sub temp_name {
    my $base = shift;
    my $rest = '.' . $$ . '.' . now_ms() . '.' . random_hex(12) . '.tmp';
    return '.' . (length($base) + 1 + length($rest) > 255 ? sha256_hex($base) : $base) . $rest;
}

# RS-SEG-01 to RS-SEG-03.
sub segment {
    my ($id, $limit) = @_;
    my $lone = $id =~ s/[\x{d800}-\x{dfff}]/\x{fffd}/g;
    my $utf8 = bytes($id);
    (my $plain = $utf8) =~ s/([^A-Za-z0-9\-_.!~*'()])/sprintf '%%%02X', ord $1/ge;
    my $portable = $plain ne '' && $plain ne '.' && $plain ne '..' && $plain !~ /\.\z/
        && $plain !~ /\A(?:con|prn|aux|nul|com[1-9]|lpt[1-9])(?:\.|\z)/i && $plain !~ /%5c/i && $plain !~ /\.[A-Za-z][A-Za-z0-9]{0,7}\z/;
    return $plain if !$lone && $portable && length($plain) <= $limit;
    return '~sha256-' . sha256_hex($utf8);
}

sub parent { my $p = shift; $p =~ s{/+[^/]*/*\z}{}; return $p eq '' ? '/' : $p }
sub base   { my $p = shift; $p =~ s{/+\z}{}; $p =~ s{.*/}{}; return $p }

# ---- files --------------------------------------------------------------------------------------------------------------------------

# What went wrong with a file: the text names file, step and cause, the number says whether waiting helps.
sub fail {
    my ($what, $file, $number) = @_;
    my $room = $number == ENOSPC ? free_bytes(parent($file)) : '';
    local $! = $number;
    die bless { text => "$file: $what: $!$room", number => $number }, 'Err';
}

# What is free where a file should be (RS-ATOM-11). Perl has no call for it.
sub free_bytes {
    my $dir = shift;
    open my $df, '-|', 'df', '-Pk', $dir or return '';
    my ($kib) = map { /^\S+\s+\d+\s+\d+\s+(\d+)\s/ ? $1 : () } <$df>;
    close $df;
    return defined $kib ? ' (' . $kib * 1024 . ' bytes are free)' : '';
}

sub refuse { my ($file, $why) = @_; die bless { text => "$file: $why", number => 0 }, 'Err' }
sub told { my $e = shift; my $t = ref $e eq 'Err' ? $e->{text} : "$e"; chomp $t; return $t }
sub no_room { my $e = shift; my $n = ref $e eq 'Err' ? $e->{number} : 0; return grep { $n == $_ } ENOSPC, EDQUOT, EMFILE, ENFILE }

# The text of a plain file, bounded, through no link and without waiting; undef if there is none (RS-READ-01, RS-READ-02, RS-READ-04).
sub slurp {
    my ($file, $bound, %how) = @_;
    my $f;
    unless (sysopen $f, $file, O_RDONLY | O_NOFOLLOW | O_NONBLOCK) {
        return undef if $! == ENOENT;
        fail('cannot be opened', $file, $! + 0);
    }
    my @s = stat $f;
    refuse($file, 'is no plain file') unless S_ISREG($s[2]);
    refuse($file, 'belongs to another user') if $how{own} && $s[4] != $>;
    refuse($file, "has more than $bound bytes") if $s[7] > $bound;
    my $text = '';
    while (1) {
        my $n = sysread $f, $text, 65536, length $text;
        next if !defined $n && $! == EINTR;
        fail('cannot be read', $file, $! + 0) unless defined $n;
        last if $n == 0;
        refuse($file, "has more than $bound bytes") if length $text > $bound;
    }
    return $text;
}

sub flush_directory {
    my $dir = shift;
    sysopen my $f, $dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW or fail('cannot be opened to flush', $dir, $! + 0);
    $f->sync or fail('cannot be flushed', $dir, $! + 0);
    close $f;
}

# Whether the directory lies on ext2, ext3 or ext4 (RS-ATOM-14).
my %family;
sub on_ext {
    my $device = (stat shift)[0] // return 0;
    return $family{$device} //= do {
        my $number = join ':', ($device >> 8 & 0xfff) | ($device >> 32 & ~0xfff), ($device & 0xff) | ($device >> 12 & ~0xff);
        my $ext = 0;
        if (open my $f, '<', '/proc/self/mountinfo') {
            while (<$f>) { $ext = 1 if /^\d+ \d+ \Q$number\E .* - ext[234] / }
        }
        $ext;
    };
}

# Replaces a document as a whole. `before` is asked right before the rename and may stop it by returning false (RS-RMW-03).
sub replace {
    my ($dir, $name, $text, $level, $before) = @_;
    my $file = "$dir/$name";
    my @old = lstat $file;
    refuse($file, 'is ' . (S_ISLNK($old[2]) ? 'a link' : 'no plain file') . ' and is not replaced') if @old && !S_ISREG($old[2]);
    my $mode = @old ? $old[2] & 0600 : 0600;
    my ($temp, $f);
    for (1 .. 8) {
        $temp = "$dir/" . temp_name($name);
        last if sysopen $f, $temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, $mode;
        my $number = $! + 0;
        fail('its temp file cannot be made', $file, $number) unless $number == EEXIST;
    }
    my $second;
    my $renamed = 0;
    my $done = eval {
        # The mode comes before the first byte: in the other order others can read it for a moment.
        chmod $mode, $f or fail('its mode cannot be set', $file, $! + 0);
        my $at = 0;
        while ($at < length $text) {
            my $n = syswrite $f, $text, length($text) - $at, $at;
            next if !defined $n && $! == EINTR;
            fail('cannot be written', $file, $! + 0) unless defined $n;
            $at += $n;
        }
        # The flush comes before the rename: in the other order a power cut can leave the name on an empty file.
        if ($level >= ORDERED) { $f->sync or fail('cannot be flushed', $file, $! + 0) }
        close $f or fail('cannot be closed', $file, $! + 0);
        return 0 if $before && !$before->();
        if (@old && $level >= DURABLE && on_ext($dir)) {
            $second = "$dir/" . temp_name("$name.old");
            link $file, $second or undef $second;
        }
        rename $temp, $file or fail('cannot be renamed', $file, $! + 0);
        $renamed = 1;
        flush_directory($dir) if $level >= DURABLE;
        1;
    };
    my $wrong = $@;
    if (!$renamed) { unlink $temp }
    if (defined $second && !($renamed && $wrong)) { unlink $second }
    die $wrong if !defined $done;
    return $done;
}

# A directory to write into: a real one of this user (RS-ATOM-07). It is made where it is not, durably, if told to.
sub directory {
    my ($dir, %how) = @_;
    my @s = lstat $dir;
    if (!@s) {
        return 0 if $how{there};
        if (!-d parent($dir)) { directory(parent($dir)) }
        if (mkdir $dir, 0700) {
            chmod 0700, $dir or fail('its mode cannot be set', $dir, $! + 0);
            flush_directory(parent($dir)) unless $how{safe};
        } elsif ($! != EEXIST) {
            fail('cannot be made', $dir, $! + 0);
        }
        @s = lstat $dir or fail('cannot be looked at', $dir, $! + 0);
    }
    refuse($dir, 'is a link and is not used as a directory') if S_ISLNK($s[2]);
    refuse($dir, 'is no directory') unless S_ISDIR($s[2]);
    refuse($dir, 'belongs to another user') if $s[4] != $> && $> != 0;
    return 1;
}

# ---- the configuration --------------------------------------------------------------------------------------------------------------

my (%C, %R, @steps, @groups);    # the configuration, the run, its steps (flat) and its groups (lists of indexes)
my ($root, $dir, $id, $me);      # temp root, run directory, run id, instance
my $stage = 'config';

# What has to hold of every step, whoever does it (the table after RS-START-45).
sub check_step {
    my ($step, $name) = @_;
    die "$name: a step has to be an object\n" unless $step->[0] eq 'o';
    die "$name: `agent` has to be a non-empty text\n" unless (member($step, 'agent', 's') // '') ne '';
    die "$name: `task` has to be a text\n" unless defined member($step, 'task', 's');
    for (qw(inheritProjectContext inheritGlobalContext inheritSkills)) {
        die "$name: `$_` has to be true or false\n" unless (member($step, $_, 'w') // '') =~ /\A(?:true|false)\z/;
    }
}

sub check_steps {
    my $list = shift;
    die "`steps` has to be a non-empty list\n" unless $list && @$list;
    for my $i (0 .. $#$list) {
        my ($step, $name) = ($list->[$i], "steps[$i]");
        my $group = member($step, 'parallel');
        if (!$group) { check_step($step, $name) }
        elsif ($group->[0] eq 'a') {
            die "$name: `parallel` is empty\n" unless @{ $group->[1] };
            check_step($group->[1][$_], "$name.parallel[$_]") for 0 .. $#{ $group->[1] };
        } else {
            for (qw(expand collect)) { die "$name: `$_` has to be an object\n" unless member($step, $_, 'o') }
            check_step($group, "$name.parallel");
        }
    }
}

# What this runner makes of a step (RS-STEP-09).
sub command_of {
    my ($doc, $step, $name) = @_;
    my $command = member($step, 'command', 'a');
    die "$name: `command` has to be a list of texts; a task of an agent is no command\n"
        unless $command && @$command && $command->[0][1] ne '' && !grep { $_->[0] ne 's' || $_->[1] =~ /\0/ } @$command;
    for ([ 'cwd', 's' ], [ 'env', 'o' ]) {
        die "$name: `$_->[0]` is of another kind\n" if has($step, $_->[0]) && !defined member($step, @$_);
    }
    my $env = member($step, 'env', 'o');
    for ($env ? @{ $env->[1] } : ()) {
        my ($key, $value) = @$_;
        die "$name: a member of `env` is no text and not null, or has a name that no system takes\n"
            if $key eq '' || $key =~ /[=\0]/ || !($value->[0] eq 's' && $value->[1] !~ /\0/ || $value->[0] eq 'w' && $value->[1] eq 'null');
    }
    return {
        agent => member($step, 'agent', 's'), status => 'pending', tail => '', dropped => 0, text => text_of($doc, $step),
        command => [ map { bytes($_->[1]) } @$command ], cwd => member($step, 'cwd', 's'),
        env => [ map { [ bytes($_->[0]), $_->[1][0] eq 's' ? bytes($_->[1][1]) : undef ] } $env ? @{ $env->[1] } : () ],
    };
}

# The commands of a list of steps, flat, and their groups.
sub commands_of {
    my ($doc, $list, $first) = @_;
    my (@flat, @by);
    for my $i (0 .. $#$list) {
        my ($step, $name) = ($list->[$i], "steps[$i]");
        if (member($step, 'parallel')) {
            my $of = member($step, 'parallel', 'a') or die "$name: a group that is made later is none of commands\n";
            push @by, { in => [ map { $first + @flat + $_ } 0 .. $#$of ], group => 1 };
            push @flat, map { command_of($doc, $of->[$_], "$name.parallel[$_]") } 0 .. $#$of;
        } else {
            push @by, { in => [ $first + @flat ] };
            push @flat, command_of($doc, $step, $name);
        }
    }
    return (\@flat, \@by);
}

sub read_configuration {
    my $file = shift;
    my $text = slurp($file, STATUS, own => 1);
    die "$file: there is none\n" unless defined $text;
    my $doc = parse($text);
    $R{readAt} = now_ms();    # the time limit counts from here (RS-STEP-09)
    # It may hold prompts, so it goes whether it is taken or not. What cannot be parsed is left.
    unlink $file or warn "$file: cannot be removed: $!\n";
    my $top = $doc->{top};
    die "the configuration is no object\n" unless $top->[0] eq 'o';
    for (qw(id asyncDir cwd resultPath runnerProcessInstanceId)) {
        $C{$_} = member($top, $_, 's');
        die "`$_` has to be a non-empty text\n" unless defined $C{$_} && $C{$_} ne '' && $C{$_} !~ /[\0\x{d800}-\x{dfff}]/;
    }
    for ([qw(sessionId s)], [qw(launchBarrierToken s)], [qw(resultMode s)], [qw(completionOwnerId s)], [qw(toolCallId s)], [qw(timeoutMs n)],
        [qw(deadlineAt n)], [qw(revivalLease o)], [qw(nestedRoute o)], [qw(nestedSelf o)]) {
        $C{ $_->[0] } = member($top, @$_);
        die "`$_->[0]` is of another kind\n" if has($top, $_->[0]) && !defined $C{ $_->[0] };
    }
    die "`placeholder` has to be a text\n" unless defined member($top, 'placeholder', 's');
    die "`asyncDir` has to be absolute\n" unless $C{asyncDir} =~ m{^/};
    die "`id` is no name of a run\n" if $C{id} =~ m{/|\A\.{1,2}\z|\A\.(?:active|terminal)-runs\z};
    die "`asyncDir` is not the directory of `id`\n" unless base($C{asyncDir}) eq $C{id};
    die "`sessionId` is empty\n" if defined $C{sessionId} && $C{sessionId} eq '';
    my $token = $C{launchBarrierToken};
    die "`launchBarrierToken` is not the instance\n" if defined $token && $token ne '' && $token ne $C{runnerProcessInstanceId};
    if ($C{revivalLease}) {
        for (qw(sessionFile runId sourceRunId)) {
            my $m = member($C{revivalLease}, $_, 's');
            die "`revivalLease.$_` has to be a non-empty text\n" unless defined $m && $m ne '';
        }
        die "`revivalLease.runId` is not `id`\n" unless member($C{revivalLease}, 'runId', 's') eq $C{id};
    }
    check_steps(member($top, 'steps', 'a'));
    @C{qw(doc list)} = ($doc, member($top, 'steps', 'a'));
    ($root, $dir, $id, $me) = (parent($file =~ m{^/} ? $file : Cwd::getcwd() . "/$file"), bytes($C{asyncDir}), $C{id}, $C{runnerProcessInstanceId});
    my @s = lstat $root;
    refuse($root, 'is a link, and no root') unless @s && S_ISDIR($s[2]);
    refuse($root, 'belongs to another user; name a root of your own') if $s[4] != $> && $> != 0;
    refuse($root, 'can be changed by others; take the right to write from them') if $s[2] & 022 && !($s[2] & 01000);
    directory($dir, there => 1) or refuse($dir, 'is not there');
}

# ---- who this is --------------------------------------------------------------------------------------------------------------------

# The steps of this run; the configuration is valid and the launcher listens.
sub take_steps {
    my ($flat, $by) = commands_of(@C{qw(doc list)}, 0);
    @steps = @$flat;
    @groups = @$by;
    number_steps();
    $C{mode} = $C{resultMode} // (@groups > 1 ? 'chain' : $groups[0]{group} ? 'parallel' : 'single');
}

sub first_line { open my $f, '<', shift or return undef; my $l = <$f>; chomp $l if defined $l; return $l }

# State, group and start of a process, or nothing.
sub process {
    my $pid = shift;
    my $line = first_line("/proc/$pid/stat") // return;
    $line =~ s/\A.*\) //s or return;
    my @f = split ' ', $line;
    return { state => $f[0], group => $f[2], start => $f[19] };
}
sub start_of { my $p = process(shift); return $p ? "linux:$p->{start}" : undef }

my %self;
sub know_self {
    %self = (
        hostname => text((POSIX::uname())[1]), pidNamespaceScope => readlink('/proc/self/ns/pid'),
        processStartIdentity => start_of($$), bootId => first_line('/proc/sys/kernel/random/boot_id'),
    );
}

# RS-CAND-08: the family whose rule leads to the store, else the name of a directory above the run.
sub writer_kind {
    my $same = sub { my ($a, $b) = (Cwd::realpath(shift), Cwd::realpath($root)); return defined $a && defined $b && $a eq $b };
    for ([ 'PI', 'pi' ], [ 'DM', 'dm' ]) {
        my $v = $ENV{"$_->[0]_SUBAGENTS_TEMP_ROOT"} // next;
        $v =~ s/\A\s+|\s+\z//g;
        return "$_->[1]-writer" if $v =~ m{^/} && $same->($v);
    }
    my $tmp = $ENV{TMPDIR} // '/tmp';
    for (qw(pi dm)) { return "$_-writer" if -d "$tmp/$_-subagents-uid-$<" && $same->("$tmp/$_-subagents-uid-$<") }
    return "/$dir" =~ m{/dm-subagents-[^/]*/} ? 'dm-writer' : 'pi-writer';
}

# ---- the log ------------------------------------------------------------------------------------------------------------------------

# A failed append fails nothing (RS-EVENT-11).
sub event {
    my ($type, @more) = @_;
    my $line = emit(obj(type => $type, ts => num(now_ms()), runId => $id, @more)) . "\n";
    eval { append("$dir/events.jsonl", $line, LOG); 1 } or warn 'the log was not written: ' . told($@) . "\n";
}

# One line with one write, and a newline first where the last line has none. A log that has a bound is moved aside when it is full, and when it
# has a second name.
sub append {
    my ($file, $line, $bound) = @_;
    my $f;
    for my $try (1, 2) {
        sysopen $f, $file, O_RDWR | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK, 0600 or fail('cannot be opened', $file, $! + 0);
        my @s = stat $f;
        refuse($file, 'is no plain file') unless S_ISREG($s[2]);
        if ($bound && $try == 1 && ($s[3] > 1 || $s[7] + length($line) > $bound)) {
            (my $aside = $file) =~ s/(\.[^.\/]+)\z/.previous$1/;
            rename $file, $aside or fail('cannot be moved aside', $file, $! + 0);
            next;
        }
        refuse($file, 'has a second name') if $bound && $s[3] > 1;
        chmod 0600, $f if $s[7] == 0;
        if ($s[7] > 0) {
            sysseek $f, -1, 2;
            my $last = '';
            $line = "\n$line" if sysread($f, $last, 1) && $last ne "\n";
        }
        last;
    }
    my $n = syswrite $f, $line;
    fail('cannot be written', $file, $! + 0) unless defined $n;
    refuse($file, 'took a part of a line') unless $n == length $line;
    return $f;
}

# ---- the status ---------------------------------------------------------------------------------------------------------------------

my %known = map { $_ => 1 } qw(queued running);
my ($seen, $own);    # how the status file looked when it was last read or written, and whether an end in it is ours

sub look { my @s = Time::HiRes::lstat(shift); return @s ? join ':', @s[ 0, 1, 7, 9, 10 ] : '' }

# The status, parsed; undef if there is none. One that is damaged, or says a thing twice, is not rewritten (RS-RMW-02).
sub read_status {
    my $text = slurp("$dir/status.json", STATUS) // return undef;
    my $doc = eval { parse_object($text) } or refuse("$dir/status.json", 'is damaged: ' . told($@));
    refuse("$dir/status.json", 'has a member twice') if $doc->{doubled};
    refuse("$dir/status.json", 'has no state') unless defined member($doc->{top}, 'state', 's');
    my $run = member($doc->{top}, 'runId', 's');
    refuse("$dir/status.json", 'names another run') if defined $run && $run ne $id;
    return $doc;
}

# Whether a status tells the end of the run for good. The account of a repairer gives way to ours (RS-RMW-06, RS-PROOF-16).
sub ended_by_another {
    my $doc = shift // return 0;
    my $state = member($doc->{top}, 'state', 's');
    return 0 if $known{$state} || $state eq 'paused';
    my $proof = member($doc->{top}, 'processTerminal', 'o');
    return 1 unless $proof;
    return 0 if (member($proof, 'reason', 's') // '') eq 'stale-repair' || (member($proof, 'runnerProcessInstanceId', 's') // '') eq 'observer-unavailable';
    return 1;
}

sub pending_proof {
    return obj(version => num(1), state => 'pending', runId => $id, runnerProcessInstanceId => $me, @_);
}

sub step_members {
    my $s = shift;
    my @m = (agent => $s->{agent}, status => $s->{status});
    for (qw(startedAt endedAt durationMs stopRequestedAt)) { push @m, $_ => defined $s->{$_} ? num($s->{$_}) : undef }
    push @m, exitCode => defined $s->{exitCode} ? num($s->{exitCode}) : undef;
    for (qw(timedOut stopped stopRequested)) { push @m, $_ => $s->{$_} ? true() : undef }
    for (qw(processSignal error)) { push @m, $_ => $s->{$_} }
    return @m, processTerminal => pending_proof(childIndex => num($s->{i}));
}

sub run_members {
    my @m = (
        lifecycleArtifactVersion => num(3), runId => $id, sessionId => $C{sessionId}, completionOwnerId => $C{completionOwnerId},
        mode => $C{mode}, state => $R{state}, startedAt => num($R{startedAt}), lastUpdate => num(now_ms()),
        currentStep => num($R{current}), chainStepCount => num(scalar @groups),
    );
    my @by = grep { $groups[$_]{group} } 0 .. $#groups;
    push @m, parallelGroups => [ map { obj(start => num($groups[$_]{in}[0]), count => num(scalar @{ $groups[$_]{in} }), stepIndex => num($_)) } @by ] if @by;
    for (qw(deadlineAt endedAt timeoutMs pendingAppends)) { push @m, $_ => defined $R{$_} ? num($R{$_}) : undef }
    for (qw(timedOut stopped)) { push @m, $_ => $R{$_} ? true() : undef }
    for (qw(error sessionFile)) { push @m, $_ => $R{$_} }
    push @m, isNested => true() if $C{nestedSelf};
    return @m;
}

# The process, with all that identifies it (RS-RUN-05). What the launcher knew of this same process stays.
sub process_members {
    my $top = shift;
    my @m = (pid => num($$));
    for (qw(pidNamespaceScope hostname processStartIdentity bootId)) { push @m, $_ => $self{$_} // null() }
    push @m, pidfdInode => null() if has($top, 'pidfdInode') && (member($top, 'pid', 'n') // '') ne "$$";
    push @m, runnerPid => num($$) if has($top, 'runnerPid');
    return @m;
}

# The text of the status that is to be, over the one that is there.
sub status_text {
    my $doc = shift;
    my $top = $doc ? $doc->{top} : undef;
    my @m = (run_members(), process_members($top));
    my $proof = $top && member($top, 'processTerminal', 'o');
    my $ours = $proof && (member($proof, 'runnerProcessInstanceId', 's') // '') eq $me && (member($proof, 'reason', 's') // '') ne 'stale-repair';
    push @m, processTerminal => pending_proof() unless $ours;
    my $old = $top && member($top, 'steps', 'a');
    my @list;
    for my $s (@steps) {
        my $was = $old && $old->[ $s->{i} ];
        my @set = step_members($s);
        push @list, raw($was && $was->[0] eq 'o' ? patch($doc, $was, '    ', @set) : emit(obj(present(@set)), '    '));
    }
    push @m, steps => \@list;
    return $doc ? substr($doc->{text}, 0, $top->[2]) . patch($doc, $top, '', @m) . substr($doc->{text}, $top->[3]) : emit(obj(present(@m)), '');
}
sub present { my @all = @_; my @out; while (my ($k, $v) = splice @all, 0, 2) { push @out, $k, $v if defined $v } return @out }

# Writes the status once more. Returns false when somebody else has told the end for good; then nothing more is written (RS-STEP-08).
sub tell_status {
    my $level = $known{ $R{state} } ? ORDERED : DURABLE;
    for (1 .. 20) {
        my $look = look("$dir/status.json");
        my $doc = read_status();
        if (!$own && ended_by_another($doc)) { $R{taken_away} = 1; return 0 }
        my $text = status_text($doc);
        my $done = replace($dir, 'status.json', $text, $level, sub { look("$dir/status.json") eq $look });
        next unless $done;
        $seen = look("$dir/status.json");
        $R{late} = 0;
        news('updated') unless defined $R{endedAt};
        return 1;
    }
    refuse("$dir/status.json", 'others keep writing it');
}

# While the run works, a status for which there is no room follows when there is some (RS-DEFER-02).
sub tell_later {
    return 0 if $R{taken_away};
    my $done = eval { tell_status() };
    return $done if defined $done;
    my $wrong = $@;
    warn 'the status was not written: ' . told($wrong) . "\n";
    event('runstore.write.deferred', file => 'status.json', cause => told($wrong)) if no_room($wrong) && !$R{late};
    $R{late} = clock() + 1;
    return 0;
}

# A record of the end: while there is no room, the reserve is given back, and the step is tried again each second (RS-DEFER-04, RS-DEFER-08).
sub settle {
    my $do = shift;
    while (1) {
        my $done = eval { $do->() };
        return $done if defined $done;
        die $@ unless no_room($@);
        my $wrong = $@;
        if (($wrong->{number} == ENOSPC || $wrong->{number} == EDQUOT) && unlink "$dir/.runstore-reserve") { next }
        warn 'waiting for room: ' . told($wrong) . "\n";
        sleep 1;
    }
}

# ---- indexes ------------------------------------------------------------------------------------------------------------------------

sub runs_root { return parent($dir) }

sub mark_active {
    my $active = runs_root() . '/.active-runs';
    my $file = "$active/" . bytes($id);
    directory($active);
    return if lstat $file;
    sysopen my $f, $file, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600 or fail('cannot be made', $file, $! + 0);
    chmod 0600, $f;
    flush_directory($active);
}

# The terminal marker comes first: in the other order a crash in between hides the run from every listing (RS-INDEX-16).
sub mark_ended {
    my $runs = runs_root();
    my $at = $R{endedAt} // now_ms();
    # An index follows the status: what the status does not say is told nowhere (RS-INDEX-17).
    my $doc = read_status();
    return unless $doc && member($doc->{top}, 'state', 's') eq $R{state};
    if (defined $C{sessionId}) {
        my $session = "$runs/.terminal-runs/" . segment($C{sessionId}, 255);
        directory("$runs/.terminal-runs");
        directory($session);
        my $name = sprintf('%016d', $at) . '-' . segment($id, 250) . '.json';
        replace($session, $name, emit(obj(version => num(1), runId => $id, sessionId => $C{sessionId}, endedAt => num($at)), ''), DURABLE);
    }
    unlink "$runs/.active-runs/" . bytes($id);
    my $calls = "$runs/.active-runs/tool-calls";
    return unless eval { directory($calls, there => 1) };
    opendir my $d, $calls or return;
    for (grep { !/^\.\.?\z/ } readdir $d) {
        next unless S_ISDIR((lstat "$calls/$_")[2] // 0);
        rmdir "$calls/$_" if unlink "$calls/$_/" . bytes($id);
    }
}

# ---- the result ---------------------------------------------------------------------------------------------------------------------

sub results_root { return parent(bytes($C{resultPath})) }

sub result_of {
    my $s = shift;
    my $output = $s->{tail};
    my @m = (agent => $s->{agent}, output => text($output), success => raw($s->{status} eq 'complete' ? 'true' : 'false'));
    push @m, skipped => true() if $s->{status} eq 'pending';
    push @m, interrupted => true() if $s->{status} eq 'paused';
    for (qw(timedOut stopped)) { push @m, $_ => true() if $s->{$_} }
    push @m, exitCode => num($s->{exitCode}) if defined $s->{exitCode};
    for (qw(processSignal error)) { push @m, $_ => $s->{$_} if defined $s->{$_} }
    return obj(@m);
}

sub result_text {
    my $state = $R{state};
    my $done = grep { $_->{status} eq 'complete' } @steps;
    my @m = (
        lifecycleArtifactVersion => num(3), id => $id, agent => $steps[0]{agent}, mode => $C{mode},
        success => raw($state eq 'complete' ? 'true' : 'false'), state => $state, summary => "$state: $done of " . @steps . ' steps complete',
    );
    push @m, error => $R{error} if defined $R{error};
    for (qw(stopped timedOut)) { push @m, $_ => true() if $R{$_} }
    push @m, (
        results => [ map { result_of($_) } @steps ], exitCode => num($state eq 'complete' || $state eq 'paused' ? 0 : 1),
        timestamp => num($R{endedAt}), durationMs => num($R{endedAt} - $R{startedAt}), cwd => $C{cwd}, asyncDir => $C{asyncDir}, sessionId => $C{sessionId},
    );
    push @m, completionOwnerId => $C{completionOwnerId} if defined $C{completionOwnerId};
    push @m, toolCallId => $C{toolCallId} if defined $C{toolCallId};
    return emit(obj(@m), '');
}

# Pending file, index by session, the short cuts, promotion (12.7). The first two have to succeed.
sub publish {
    my $results = results_root();
    my $public = base(bytes($C{resultPath}));
    my ($session, $run) = (segment($C{sessionId}, 255), segment($id, 250) . '.json');
    my $pending = "$results/result-pending/$session";
    directory($results);
    directory("$results/result-pending");
    directory($pending);
    replace($pending, $run, result_text(), DURABLE);
    my $entry = emit(obj(version => num(1), runId => $id, sessionId => $C{sessionId}, file => text($public), writtenAt => num(now_ms()),
        asyncDir => $C{asyncDir}), '');
    my $index = sub {
        my $at = "$results/result-index";
        directory($at);
        for (@_) { $at .= "/$_"; directory($at) }
        replace($at, $run, $entry, DURABLE);
    };
    $index->('sessions', $session);
    my @more = ([ 'runs' ]);
    push @more, [ 'tool-calls', segment($C{toolCallId}, 255) ] if defined $C{toolCallId} && $C{toolCallId} ne '';
    push @more, [ 'observers', 'mission' ] if S_ISREG((lstat "$dir/mission.json")[2] // 0);
    for (@more) { eval { $index->(@$_); 1 } or warn 'an index was not written: ' . told($@) . "\n" }
    eval {
        my @s = lstat "$results/$public";
        refuse("$results/$public", 'is no plain file') if @s && !S_ISREG($s[2]);
        rename "$pending/$run", "$results/$public" or fail('cannot be promoted', "$pending/$run", $! + 0);
        flush_directory($results);
        flush_directory($pending);
        1;
    } or warn 'the result stays pending: ' . told($@) . "\n";
    return 1;
}

# ---- the lease of a session (revivals) ----------------------------------------------------------------------------------------------

my %lease;    # dir, token, file, and the members of the owner record

sub owner_text {
    my @m = (version => num(1), token => $lease{token}, canonicalSessionFile => $lease{canonical}, runId => $id, sourceRunId => $lease{source});
    push @m, parentSessionId => $lease{parent} if defined $lease{parent};
    push @m, pid => num($$), hostname => $self{hostname};
    push @m, processStartIdentity => $self{processStartIdentity} if defined $self{processStartIdentity};
    # This process writes to the session itself, so the lease has no writer beside its owner (9.1).
    push @m, writerState => 'none', acquiredAt => $lease{at}, acquiredAtMs => num($lease{atMs}), updatedAtMs => num($lease{atMs});
    for (qw(pidNamespaceScope bootId)) { push @m, $_ => $self{$_} if defined $self{$_} }
    return emit(obj(@m), '');
}

# A record of an owner, or nothing if it is not valid (9.1).
sub owner_of {
    my $at = shift;
    my $text = eval { slurp("$at/owner.json", RECORD) } // return;
    my $doc = eval { parse_object($text) } or return;
    my $top = $doc->{top};
    my %o = map { $_ => member($top, $_, 's') } qw(token canonicalSessionFile runId sourceRunId hostname acquiredAt writerState);
    for (keys %o) { return unless defined $o{$_} }
    for (qw(acquiredAtMs updatedAtMs)) { return unless defined member($top, $_, 'n') }
    return unless (member($top, 'version', 'n') // '') eq '1' && $o{writerState} =~ /\A(?:none|spawning|running)\z/;
    for (qw(pid writerPid)) {
        $o{$_} = member($top, $_, 'n');
        return if defined $o{$_} && $o{$_} !~ /\A[1-9][0-9]*\z/;
    }
    return unless defined $o{pid} && ($o{writerState} eq 'running' ? defined $o{writerPid} : !has($top, 'writerPid'));
    for (qw(processStartIdentity writerProcessStartIdentity bootId pidNamespaceScope)) { $o{$_} = member($top, $_, 's') }
    $o{text} = $text;
    return \%o;
}

# Gone: no such process, one that has ended and waits to be reaped, or another one by two identities that differ (RS-LEASE-02, RS-LEASE-08).
sub gone {
    my ($pid, $start) = @_;
    return $! == ESRCH unless kill 0, $pid;
    my $p = process($pid) or return 0;
    return 1 if $p->{state} =~ /[ZX]/;
    return defined $start && $start =~ /\Alinux:/ && $start ne "linux:$p->{start}";
}

sub reclaimable {
    my $o = shift;
    return 0 if $o->{hostname} ne $self{hostname} || $o->{writerState} eq 'spawning';
    return 0 if defined $o->{pidNamespaceScope} && $o->{pidNamespaceScope} ne ($self{pidNamespaceScope} // '');
    return 1 if defined $o->{bootId} && defined $self{bootId} && $o->{bootId} ne $self{bootId};
    return 0 unless gone($o->{pid}, $o->{processStartIdentity});
    return $o->{writerState} eq 'none' || gone($o->{writerPid}, $o->{writerProcessStartIdentity});
}

sub take_lease {
    my $of = $C{revivalLease};
    my $file = bytes(member($of, 'sessionFile', 's'));
    my $short = length $file > 200 ? substr($file, 0, 200) . '…' : $file;
    stat $file or die "the session file $short cannot be used: $!\n";
    die "the session file $short is no plain file\n" unless -f _;
    my $canonical = Cwd::realpath($file) // die "the session file $short cannot be resolved: $!\n";
    my $leases = "$root/session-leases";
    directory($leases);
    my $ms = now_ms();
    %lease = (
        file => $canonical, canonical => text($canonical), source => member($of, 'sourceRunId', 's'), parent => member($of, 'parentSessionId', 's'),
        token => uuid(), atMs => $ms, at => POSIX::strftime('%Y-%m-%dT%H:%M:%S', gmtime int($ms / 1000)) . sprintf('.%03dZ', $ms % 1000),
    );
    my $name = sha256_hex(bytes($lease{canonical}));
    my ($at, $candidate) = ("$leases/$name", "$leases/$name.candidate-$lease{token}");
    mkdir $candidate, 0700 or fail('cannot be made', $candidate, $! + 0);
    chmod 0700, $candidate;
    my $held = eval {
        replace($candidate, 'owner.json', owner_text(), DURABLE);
        for (1 .. 4) {
            if (my @s = lstat $at) {
                my $owner = owner_of($at) or die "the lease $at has no record that can be read; it blocks the session\n";
                die "the session is held by process $owner->{pid} on $owner->{hostname} (run $owner->{runId})\n" unless reclaimable($owner);
                # The owner that was read may have given it back and ended before it was asked about.
                my $again = owner_of($at);
                next unless $again && $again->{text} eq $owner->{text};
                rename $at, "$at.stale-" . ($owner->{token} =~ s/([^A-Za-z0-9._-])/ord $1 > 0xffff ? '--' : '-'/ger) or $! == ENOENT or fail('cannot be set aside', $at, $! + 0);
            }
            # An empty directory would be replaced; it was looked for above. One with a record is not.
            next if lstat $at;
            return 1 if rename $candidate, $at;
            fail('cannot be taken', $at, $! + 0) unless $! == ENOTEMPTY || $! == EEXIST;
        }
        die "the lease $at keeps changing hands\n";
    };
    if (!$held) {
        my $wrong = $@;
        unlink "$candidate/owner.json";
        rmdir $candidate;
        die $wrong;
    }
    $lease{dir} = $at;
    flush_directory($leases);
}

# By name first, flushed, then deleted: in place, a crash leaves a lease without a record, which blocks its session for ever (RS-LEASE-16).
sub release_lease {
    return 1 unless $lease{dir};
    my $at = delete $lease{dir};
    my $owner = owner_of($at);
    return 0 unless $owner && $owner->{token} eq $lease{token};
    my $aside = parent($at) . '/.' . base($at) . ".released-$lease{token}";
    my $flushed = eval {
        rename $at, $aside or fail('cannot be given back', $at, $! + 0);
        flush_directory(parent($at));
        1;
    };
    warn 'the lease: ' . told($@) . "\n" unless $flushed;
    unlink "$aside/owner.json";
    rmdir $aside;
    return $flushed;
}

# ---- the candidate ------------------------------------------------------------------------------------------------------------------

# Sets members of the candidate; what others put there stays. Without `make` one that is not there, or another's, is left alone.
sub tell_candidate {
    my ($make, @set) = @_;
    my $name = 'process-terminal-candidate.json';
    my $text = slurp("$dir/$name", RECORD);
    my $doc = defined $text ? eval { parse_object($text) } : undef;
    my $ours = $doc && !$doc->{doubled} && (member($doc->{top}, 'runId', 's') // '') eq $id && (member($doc->{top}, 'runnerProcessInstanceId', 's') // '') eq $me;
    if ($ours) { $text = patch($doc, $doc->{top}, '', @set) }
    elsif ($make) {
        my %set = @set;
        $text = emit(obj(version => num(1), runId => $id, runnerProcessInstanceId => $me, exists $set{writers} ? () : (writers => obj()), @set), '');
    } else { return 0 }
    replace($dir, $name, $text, DURABLE);
    return 1;
}

sub acknowledge_release {
    my $text = slurp("$dir/process-terminal-candidate.json", RECORD) // return;
    my $doc = eval { parse_object($text) } // return;
    return unless (member($doc->{top}, 'revivalLeaseToken', 's') // '') eq $lease{token};
    tell_candidate(0, revivalLeaseReleaseAcknowledged => true());
}

sub tell_writers {
    my (@writers, @counts);
    for my $s (@steps) {
        push @writers, "$s->{i}" => $s->{writer} ? [ $s->{writer} ] : [];
        push @counts, "$s->{i}" => num($s->{writer} ? 1 : 0);
    }
    tell_candidate(1, writers => obj(@writers), expectedWriters => obj(@counts));
}

# ---- start-up -----------------------------------------------------------------------------------------------------------------------

sub say_word {
    my ($state, @more) = @_;
    replace($dir, 'runner-startup.json', emit(obj(state => $state, @more), ''), SAFE);
}

# Judges one control file (RS-START-07): true if it says the wanted action, false to wait; it dies to give up.
sub judge {
    my ($file, $token, $want) = @_;
    my $text = eval { slurp("$dir/$file", MESSAGE, own => 1) };
    if ($@) {
        # A file that the system cannot read for the moment is looked at again until the time is up.
        die $@ if ref $@ eq 'Err' && ($@->{number} == 0 || $@->{number} == Errno::ELOOP());
        return 0;
    }
    return 0 unless defined $text;
    my $doc = eval { parse_object($text) } or die "$file is damaged\n";
    die "$file has another token\n" unless (member($doc->{top}, 'token', 's') // '') eq $token;
    my $action = member($doc->{top}, 'action', 's') // '';
    return 1 if $action eq $want;
    die "$file has an action that is not known\n" unless $action =~ /\A(?:ack|confirm|proceed)\z/;
    return 0;
}

# Waits until one of the looks answers, for the time of one word.
sub await {
    my ($what, @looks) = @_;
    my $from = clock();
    while (1) {
        my $late = clock() - $from >= WORD_TIME;
        for (@looks) { my $answer = $_->(); return $answer if $answer }
        die 'timed out waiting for ' . $what . "\n" if $late;
        sleep(clock() - $from < 0.1 ? 0.001 : 0.02);
    }
}

sub start_up {
    my $doc = read_status();
    die "the status tells an end: this configuration was used before\n" if $doc && !$known{ member($doc->{top}, 'state', 's') };
    take_steps();
    my $token = $C{launchBarrierToken};
    my ($ack, $confirm, $proceed) = map { "runner-startup-$_.json" } qw(ack confirm proceed);
    if (defined $token && $token ne '') {
        await('proceed', sub { judge($proceed, $token, 'proceed') });
    } elsif ($C{revivalLease}) {
        take_lease();
        $token = $lease{token};
        my $owner = owner_of($lease{dir}) or die "the lease cannot be read\n";
        say_word('ready', token => $token, pid => num($$), owner => raw($owner->{text} =~ s/\n/\n  /gr));
        await('ack', sub { judge($ack, $token, 'ack') });
        say_word('acknowledged', token => $token, pid => num($$));
        # A launcher of two steps says `proceed` here, one of P69 says `confirm` in the file of the ack (RS-START-49).
        my $word = await('confirm', sub { judge($confirm, $token, 'confirm') }, sub { judge($ack, $token, 'confirm') },
            sub { judge($proceed, $token, 'proceed') && 'proceed' });
        if ($word ne 'proceed') {
            say_word('confirmed', token => $token, pid => num($$));
            await('proceed', sub { judge($proceed, $token, 'proceed') });
        }
    }
}

# Before `proceed`: the lease is given back first. A launcher that reads the error ends this process (RS-START-52).
sub give_up {
    my $why = shift;
    release_lease();
    my $text = length $why > 4000 ? substr($why, 0, 4000) : $why;
    eval { say_word('error', pid => num($$), error => text($text)); 1 } or warn told($@) . "\n";
}

# After `proceed`, before any work: the failure of a launch (RS-START-53, RS-START-13, RS-RUN-07).
sub cannot_begin {
    my $why = shift;
    eval {
        my $doc = read_status();
        if (!$doc || $known{ member($doc->{top}, 'state', 's') }) {
            tell_candidate(1, writers => obj(), expectedWriters => obj(map { ("$_->{i}" => num(0)) } @steps));
            my @m = (state => 'failed', lastUpdate => num(now_ms()), error => $why);
            my $proof = $doc && member($doc->{top}, 'processTerminal', 'o');
            my $final = $proof && (member($proof, 'state', 's') // '') =~ /\A(?:observed|unknown)\z/;
            push @m, processTerminal => obj(version => num(1), state => 'not-started', runId => $id, runnerProcessInstanceId => $me) unless $final;
            my $text = $doc ? patch($doc, $doc->{top}, '', @m) : emit(obj(runId => $id, present(sessionId => $C{sessionId}), @m), '');
            replace($dir, 'status.json', $text, DURABLE);
        }
        1;
    } or warn 'the failure was not recorded: ' . told($@) . "\n";
    my $had = $lease{dir};
    # The candidate need not name the lease yet (RS-START-53).
    if (release_lease() && $had) { eval { tell_candidate(0, revivalLeaseReleaseAcknowledged => true()); 1 } or warn told($@) . "\n" }
}

# ---- news of a nested run ---------------------------------------------------------------------------------------------------------------

# Puts the account of this run into the route of its root, once for each change. No failure of it fails the run (RS-NEST-37).
sub news {
    my $type = shift;
    return unless $C{nestedRoute} && $C{nestedSelf} && !$R{taken_away};
    my $line = eval { news_line($type) };
    my $told = defined $line ? $type . ($line =~ s/"(?:ts|lastUpdate)":\d+//gr) : '';
    return if $told ne '' && $told eq ($R{news} // '');
    $R{news} = $told;
    eval { defined $line or die $@; put_news($line); 1 } or event('runstore.nested.untold', message => told($@));
}

# Ids that a reader would pass over are not written (RS-NEST-02, RS-NEST-33).
sub nested_id {
    my ($of, $key) = @_;
    my $v = member($of, $key, 's') // '';
    die "`$key` is no nested id\n" if $v eq '' || length $v > 128 || $v =~ m{[/\\]|\.\.};
    return $v;
}

sub news_line {
    my $type = shift;
    my ($route, $of) = @C{qw(nestedRoute nestedSelf)};
    my ($from, $token, $above) = (nested_id($route, 'rootRunId'), nested_id($route, 'capabilityToken'), nested_id($of, 'parentRunId'));
    die "the run has the id of its root\n" if $id eq $from;
    my ($depth, $at) = (member($of, 'depth', 'n') // 1, member($of, 'parentStepIndex', 'n'));
    my @place = defined $at ? (parentStepIndex => num($at)) : ();
    my @path = map { obj(runId => nested_id($_, 'runId'), defined member($_, 'stepIndex', 'n') ? (stepIndex => num(member($_, 'stepIndex', 'n'))) : ()) }
        @{ member($of, 'path', 'a') // [] };
    splice @path, 4 if @path > 4;
    my @some = @steps > 12 ? @steps[ 0 .. 11 ] : @steps;
    my @m = (id => $id, parentRunId => $above, @place, depth => num($depth > 3 ? 3 : $depth < 1 ? 1 : $depth), path => \@path, state => $R{state});
    push @m, asyncDir => $C{asyncDir}, pid => num($$);
    push @m, sessionId => $C{sessionId} if defined $C{sessionId} && length $C{sessionId} <= 256;
    push @m, mode => $C{mode}, agent => substr($steps[0]{agent}, 0, 128), agents => [ map { substr $_->{agent}, 0, 128 } @some ];
    push @m, startedAt => num($R{startedAt}), lastUpdate => num(now_ms());
    push @m, endedAt => num($R{endedAt}) if defined $R{endedAt};
    push @m, error => substr($R{error}, 0, 1024) if defined $R{error};
    push @m, steps => [
        map {
            my $s = $_;
            obj(agent => substr($s->{agent}, 0, 128), status => $s->{status}, map { defined $s->{$_} ? ($_ => num($s->{$_})) : () } qw(startedAt endedAt))
        } @some
    ];
    my $line = emit(obj(type => "subagent.nested.$type", ts => num(now_ms()), rootRunId => $from, parentRunId => $above, @place,
        capabilityToken => $token, child => obj(@m))) . "\n";
    die "the news has more than 64 KiB\n" if length $line > MESSAGE;
    return $line;
}

# The route is entered by the names that root and token make, never by a path of a record (RS-NEST-31).
sub put_news {
    my $line = shift;
    my ($from, $token) = (nested_id($C{nestedRoute}, 'rootRunId'), nested_id($C{nestedRoute}, 'capabilityToken'));
    my $at = "$root/nested-subagent-events/" . bytes("$from-$token");
    for (parent($at), $at, "$at/events") { directory($_, there => 1) or refuse($_, 'is not there') }
    my $text = slurp("$at/route.json", MESSAGE);
    if (defined $text) {
        my $top = parse_object($text)->{top};
        refuse("$at/route.json", 'names another route')
            unless (member($top, 'rootRunId', 's') // '') eq $from && (member($top, 'capabilityToken', 's') // '') eq $token;
    } else {
        replace($at, 'route.json', emit(obj(rootRunId => $from, capabilityToken => $token, createdAt => num(now_ms())), ''), DURABLE);
    }
    replace("$at/events", sprintf('%013d-%s.json', now_ms(), uuid()), $line, SAFE);
}

# ---- steps --------------------------------------------------------------------------------------------------------------------------

my $look_at_groups = -r '/proc/self/stat';
my @signals = split ' ', do { require Config; $Config::Config{sig_name} };

# The child waits until its start is told in log and status, then becomes the command. If this process dies meanwhile, it ends.
sub spawn {
    my $s = shift;
    pipe my $out, my $in or fail('a pipe cannot be made', "step $s->{i}", $! + 0);
    pipe my $gate, my $open or fail('a pipe cannot be made', "step $s->{i}", $! + 0);
    my $pid = fork;
    fail('cannot be started', "step $s->{i}", $! + 0) unless defined $pid;
    if (!$pid) { become($s, $in, $gate, $open) }
    setpgrp $pid, $pid;
    close $in;
    close $gate;
    $out->blocking(0);
    @$s{qw(pid out gate)} = ($pid, $out, $open);
}

sub become {
    my ($s, $in, $gate, $open) = @_;
    setpgrp 0, 0;
    close $open;
    POSIX::_exit(125) unless sysread $gate, my $go, 1;
    $SIG{PIPE} = 'DEFAULT';
    open STDIN, '<', '/dev/null' or POSIX::_exit(126);
    POSIX::dup2(fileno $in, 1);
    POSIX::dup2(fileno $in, 2);
    for (@{ $s->{env} }) { defined $_->[1] ? ($ENV{ $_->[0] } = $_->[1]) : delete $ENV{ $_->[0] } }
    my $cwd = bytes($C{cwd});
    my $here = defined $s->{cwd} ? bytes($s->{cwd}) : $cwd;
    $here = "$cwd/$here" unless $here =~ m{^/};
    my @words = @{ $s->{command} };
    if (!chdir $here) { syswrite STDERR, "cannot enter $here: $!\n"; POSIX::_exit(126) }
    { no warnings 'exec'; exec { $words[0] } @words }
    syswrite STDERR, "cannot start $words[0]: $!\n";
    POSIX::_exit(127);
}

sub begin_step {
    my $s = shift;
    my $alone = @{ $groups[ $R{group} ]{in} } == 1;
    eval {
        spawn($s);
        1;
    } or do {
        my $why = told($@);
        @$s{qw(status error startedAt endedAt exitCode)} = ('failed', $why, now_ms(), now_ms(), 1);
        tell_later();
        event('subagent.step.failed', stepIndex => num($s->{i}), agent => $s->{agent}, exitCode => num(1));
        return;
    };
    @$s{qw(status startedAt)} = ('running', now_ms());
    $R{current} = $s->{i} if $alone || $s->{i} == $groups[ $R{group} ]{in}[0];
    event('subagent.step.started', stepIndex => num($s->{i}), agent => $s->{agent}, pid => num($s->{pid}));
    tell_later();
    { local $SIG{PIPE} = 'IGNORE'; syswrite $s->{gate}, 'g' unless $R{taken_away} }
    close delete $s->{gate};
}

# Whether anybody of a process group is alive. It is asked while the leader is not reaped, so that the number is its own.
sub group_lives {
    my $group = shift;
    opendir my $d, '/proc' or return 1;
    for (grep { /\A[0-9]+\z/ } readdir $d) {
        my $p = process($_) or next;
        return 1 if $p->{group} == $group && $p->{state} !~ /[ZX]/;
    }
    return 0;
}

# Whether the leader has ended. It is not reaped here. A first thread that has ended alone leaves the others in `task`.
sub leader_ended {
    my $s = shift;
    return 1 if $s->{ended};
    if (!$look_at_groups) {
        return 0 unless waitpid($s->{pid}, POSIX::WNOHANG()) == $s->{pid};
        $s->{code} = $?;
        return $s->{ended} = 1;
    }
    my $p = process($s->{pid});
    return 0 if $p && $p->{state} !~ /[ZX]/;
    if (opendir my $d, "/proc/$s->{pid}/task") { return 0 if 1 < grep { /\A[0-9]/ } readdir $d }
    return $s->{ended} = 1;
}

sub end_group {
    my $s = shift;
    return if $s->{killAt};
    $s->{killAt} = clock() + END_TIME;
    kill 'TERM', -$s->{pid};
    kill 'CONT', -$s->{pid};    # one that is stopped hears nothing
}

sub read_output {
    my $s = shift;
    return unless $s->{out};
    for (1 .. 64) {
        my $n = sysread $s->{out}, my $piece, 65536;
        if (!defined $n) { return if $! == EAGAIN || $! == EINTR; $n = 0 }
        if ($n == 0) { close delete $s->{out}; return }
        $s->{tail} = substr $s->{tail} . $piece, -4096;
        eval { keep_output($s, $piece); 1 } or do {
            warn "the output of step $s->{i}: " . told($@) . "\n" unless $s->{dropped};
            $s->{dropped} += length $piece;
        };
    }
}

# The log of a step is bounded: it is moved aside before the next piece would lead above the bound (RS-STEP-02).
sub keep_output {
    my ($s, $piece) = @_;
    my $file = "$dir/output-$s->{i}.log";
    if ($s->{log} && $s->{size} + length $piece > OUTPUT) {
        close delete $s->{log};
        rename $file, "$dir/output-$s->{i}.previous.log" or fail('cannot be moved aside', $file, $! + 0);
    }
    if (!$s->{log}) {
        sysopen my $f, $file, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK, 0600 or fail('cannot be opened', $file, $! + 0);
        my @st = stat $f;
        refuse($file, 'is no plain file of its own') unless S_ISREG($st[2]) && $st[3] == 1;
        chmod 0600, $f if $st[7] == 0;
        @$s{qw(log size)} = ($f, $st[7]);
        return keep_output($s, $piece) if $st[7] && $st[7] + length $piece > OUTPUT;
    }
    my $n = syswrite $s->{log}, $piece;
    fail('cannot be written', $file, $! + 0) unless defined $n;
    $s->{size} += $n;
    $s->{dropped} += length($piece) - $n;
}

# The step has ended: its leader, and everybody in its group, or nobody could make them.
sub close_step {
    my ($s, $tree) = @_;
    if ($look_at_groups) { waitpid $s->{pid}, 0; $s->{code} = $? }
    read_output($s);
    close delete $s->{out} if $s->{out};
    close delete $s->{log} if $s->{log};
    my ($signal, $code) = ($s->{code} & 127, $s->{code} >> 8);
    @$s{qw(endedAt)} = (now_ms());
    $s->{durationMs} = $s->{endedAt} - $s->{startedAt};
    if ($signal) { $s->{processSignal} = "SIG$signals[$signal]" } else { $s->{exitCode} = $code }
    $s->{writer} = obj(
        processInstanceId => uuid(), kind => $R{kind}, attempt => num(0), closeObservedAt => num($s->{endedAt}), exitCode => $signal ? null() : num($code),
        signal => $signal ? $s->{processSignal} : null(), processTree => $tree,
    );
    my $told = $s->{told} // '';
    if    ($told eq 'stop')      { $s->{status} = 'stopped'; $s->{stopped} = 1 }
    elsif ($told eq 'timeout')   { $s->{status} = 'failed'; $s->{timedOut} = 1; $s->{error} = 'the time was over' }
    elsif ($told eq 'interrupt') { $s->{status} = 'paused' }
    elsif ($told || $signal || $code) {
        $s->{status} = 'failed';
        $s->{error} = $told || ($signal ? "ended by $s->{processSignal}" : "exit code $code");
    } else { $s->{status} = 'complete' }
    tell_later();
    my %word = (complete => 'completed', failed => 'failed', paused => 'paused', stopped => 'stopped');
    return if $R{taken_away};
    my @m = (stepIndex => num($s->{i}), agent => $s->{agent}, exitCode => $signal ? null() : num($code));
    push @m, signal => $s->{processSignal} if $signal;
    push @m, outputDroppedBytes => num($s->{dropped}) if $s->{dropped};
    event("subagent.step.$word{$s->{status}}", @m);
}

# One look at a step that is at work.
sub tend {
    my $s = shift;
    read_output($s);
    my $ended = leader_ended($s);
    return unless $ended || $s->{told};
    if (!$look_at_groups) {
        end_group($s) unless $ended;
        kill 'KILL', -$s->{pid} if !$ended && clock() >= $s->{killAt};
        close_step($s, obj(state => 'unknown', reason => 'unsupported-platform')) if $ended;
        return;
    }
    my $lives = group_lives($s->{pid});
    # Twice in a row: one look can miss a process that was made while it went on.
    if ($ended && !$lives && !group_lives($s->{pid})) {
        close_step($s, obj(state => 'observed', mechanism => 'posix-process-group', processGroupId => num($s->{pid}), verifiedAt => num(now_ms())));
        return;
    }
    end_group($s);
    return if clock() < $s->{killAt};
    kill 'KILL', -$s->{pid};
    close_step($s, obj(state => 'unknown', reason => 'verification-failed')) if $ended && clock() > $s->{killAt} + 10;
}

# ---- the inbox ----------------------------------------------------------------------------------------------------------------------

# The requests that lie there: the file, its kind, and its document (undef: nobody can understand it).
sub requests {
    my @found;
    my $at = sub { my ($path, $kind) = @_; push @found, [ $path, $kind ] if lstat "$dir/$path" };
    my $real = sub { S_ISDIR((lstat "$dir/$_[0]")[2] // 0) };    # a link is not followed
    my $control = $real->('control');
    for ([ 'control/stop-requests', 'stop' ], [ 'control/steer-requests', 'steer' ], [ 'append-requests', 'append' ]) {
        my ($in, $kind) = @$_;
        if ($kind eq 'steer' && $control) { $at->("control/$_.json", $_) for qw(stop timeout interrupt) }
        next unless ($kind eq 'append' || $control) && $real->($in);
        opendir my $d, "$dir/$in" or next;
        $at->("$in/$_", $kind) for sort grep { /\.json\z/ && !/\A\./ } readdir $d;
    }
    return grep { !$R{passed}{ $_->[0] } } @found;
}

sub inbox {
    for (requests()) {
        my ($file, $kind) = @$_;
        my $text = eval { slurp("$dir/$file", RECORD) };
        my $doc = defined $text ? eval { parse_object($text) } : undef;
        my $bare = $kind eq 'interrupt' || $kind eq 'timeout';    # only its existence counts
        my $good = $bare || $doc && sound($kind, $doc->{top});
        event('runstore.control.taken', file => text(base($file)), request => $kind) if $good;
        if (!unlink "$dir/$file") {
            next if $! == ENOENT;
            $R{passed}{$file} = 1;
            next unless $bare;
        }
        next unless $good;
        if ($kind eq 'steer') {
            event('subagent.steer.failed', requestId => member($doc->{top}, 'id', 's'), reason => 'a command takes no messages');
        } elsif ($kind eq 'append') {
            append_steps($doc);
        } elsif ($kind eq 'stop' && has($doc->{top}, 'targetIndex')) {
            stop_step(member($doc->{top}, 'targetIndex', 'n'), member($doc->{top}, 'reason', 's'));
        } else {
            tell_end($kind, $doc && $doc->{top}[0] eq 'o' ? member($doc->{top}, 'reason', 's') : undef);
        }
    }
}

# Whether a request is in order. A stop without an index is of the whole run, whatever else it names.
sub sound {
    my ($kind, $top) = @_;
    if ($kind eq 'append') { return (member($top, 'id', 's') // '') ne '' && member($top, 'steps', 'a') }
    return 0 unless (member($top, 'type', 's') // '') eq $kind;
    return (member($top, 'id', 's') // '') ne '' && defined member($top, 'message', 's') if $kind eq 'steer';
    return 1 unless has($top, 'targetIndex');
    my $i = member($top, 'targetIndex', 'n');
    return defined $i && $i =~ /\A(?:0|[1-9][0-9]*)\z/ && $i < @steps;
}

sub stop_step {
    my ($i, $reason) = @_;
    my $s = $steps[$i];
    return if $s->{told} || $s->{status} !~ /\A(?:pending|running)\z/ || $s->{pid} && leader_ended($s);
    @$s{qw(stopRequested stopRequestedAt)} = (1, now_ms());
    $s->{error} = $reason if defined $reason;
    event('subagent.step.stop_requested', stepIndex => num($i), agent => $s->{agent});
    if ($s->{status} eq 'pending') { @$s{qw(status stopped endedAt)} = ('stopped', 1, now_ms()) }
    else                           { $s->{told} = 'stop' }
    tell_later();
}

# Tells why the run ends, in status and log, before the work is ended. The first one decides; a stop after an interruption is honoured.
sub tell_end {
    my ($why, $reason) = @_;
    return if $R{why} && !($R{why} eq 'interrupt' && $why eq 'stop');
    $R{why} = $why;
    # Whoever ended by itself before it was told keeps its own end.
    for (grep { $_->{pid} && $_->{status} eq 'running' } @steps) { $_->{told} //= $why unless leader_ended($_) }
    my $message = $reason // { stop => 'stopped by request', timeout => 'the time was over', interrupt => 'interrupted' }->{$why};
    if ($why eq 'stop') { $R{stopped} = 1 }
    elsif ($why eq 'timeout') { $R{timedOut} = 1; $R{error} = $message }
    elsif (grep { $_->{status} =~ /\A(?:pending|running)\z/ } @steps) { $R{state} = 'paused' }
    tell_later();
    return if $R{taken_away};
    if ($why eq 'stop') { event('subagent.run.stopped', message => $message) }
    elsif ($why eq 'timeout') { event('subagent.run.timed_out', message => $message, defined $R{deadlineAt} ? (deadlineAt => num($R{deadlineAt})) : ()) }
    else {
        event('subagent.run.paused');
        # A pause is no longer active, confirmed or not. The end does it again.
        if ($R{state} eq 'paused') { eval { mark_ended(); 1 } or warn told($@) . "\n" }
    }
}

sub append_steps {
    my $doc = shift;
    my $request = member($doc->{top}, 'id', 's');
    my ($flat, $by) = eval {
        die "the run is told to end\n" if $R{why} || $R{closing};
        die "the run is no chain\n" unless $C{mode} eq 'chain';
        my $list = member($doc->{top}, 'steps', 'a');
        check_steps($list);
        commands_of($doc, $list, scalar @steps);
    };
    if (!$flat) { event('runstore.append.refused', requestId => $request, reason => told($@)); return }
    push @steps, @$flat;
    push @groups, @$by;
    number_steps();
    my $open = grep { $_->[1] eq 'append' } requests();
    $R{pendingAppends} = $open;
    tell_later();
    event('subagent.chain.append.accepted', requestId => $request, stepCount => num(scalar @$flat), pendingAppends => num($open));
}

sub number_steps { $steps[$_]{i} = $_ for 0 .. $#steps }

# ---- the run ------------------------------------------------------------------------------------------------------------------------

sub begin {
    my $doc = read_status();
    die "the status tells an end\n" if $doc && !$known{ member($doc->{top}, 'state', 's') };
    %R = (%R, state => 'running', startedAt => now_ms(), current => 0, group => 0, kind => writer_kind(), passed => {});
    my @limits = grep { defined } (defined $C{deadlineAt} ? int $C{deadlineAt} : undef), (defined $C{timeoutMs} ? $R{readAt} + int $C{timeoutMs} : undef);
    ($R{deadlineAt}) = sort { $a <=> $b } @limits if @limits;
    $R{timeoutMs} = int $C{timeoutMs} if defined $C{timeoutMs};
    $C{cwd} =~ m{^/} or $C{cwd} = text(Cwd::getcwd()) . "/$C{cwd}";
    chdir '/';
    -d bytes($C{cwd}) or die "the working directory is not there\n";
    die "`resultPath` is no absolute path that ends in .json\n" unless $C{resultPath} =~ m{\A/.*[^/]\.json\z}s;
    directory(results_root()) if defined $C{sessionId};
    # From the proceed on the lease decides over the proof, so the candidate names it before any work (RS-START-50).
    if ($lease{dir}) {
        tell_candidate(0, sessionFile => $lease{canonical}, revivalLeaseToken => $lease{token});
        $R{sessionFile} = $lease{canonical};
    }
    settle(\&tell_status) or die "the status tells an end\n";
    $stage = 'work';
    eval { mark_active(); 1 } or warn told($@) . "\n";
    event('subagent.run.started', lifecycleArtifactVersion => num(3), mode => $C{mode}, cwd => $C{cwd}, pid => num($$));
    # What lets the runner in goes when something else shows that it was let in.
    unlink map { "$dir/$_.json" } qw(runner-startup-ack runner-startup-confirm runner-startup-proceed runner-startup);
}

sub work {
    my ($next_inbox, $next_look) = (0, 0);
    while (1) {
        my @group = $R{group} < @groups ? map { $steps[$_] } @{ $groups[ $R{group} ]{in} } : ();
        if (!$R{why} && !$R{taken_away}) {
            for (grep { $_->{status} eq 'pending' } @group) { begin_step($_); last if $R{taken_away} }
        }
        my $set = '';
        vec($set, fileno $_->{out}, 1) = 1 for grep { $_->{out} } @group;
        select $set, undef, undef, 0.02;
        tend($_) for grep { $_->{status} eq 'running' } @group;
        my $now = clock();
        if ($R{taken_away}) { $_->{told} //= 'somebody else told the end' for grep { $_->{status} eq 'running' } @group }
        elsif ($now >= $next_inbox) {
            $next_inbox = $now + 0.1;
            inbox();
            tell_end('timeout') if defined $R{deadlineAt} && now_ms() >= $R{deadlineAt};
            tell_later() if $R{late} && $now >= $R{late};
            if (look("$dir/status.json") ne $seen) {
                $seen = look("$dir/status.json");
                my $doc = eval { read_status() };
                $R{taken_away} = 1 if ended_by_another($doc);
            }
        }
        next if grep { $_->{status} eq 'running' } @group;
        return if $R{why} || $R{taken_away} || grep { $_->{status} ne 'complete' } @group;
        return if ++$R{group} >= @groups;
    }
}

sub outcome {
    return 'complete' unless grep { $_->{status} ne 'complete' } @steps;
    my $why = $R{why} // '';
    return $why eq 'stop' ? 'stopped' : $why eq 'timeout' ? 'failed' : $why eq 'interrupt' ? 'paused' : 'failed';
}

# What is left of the work, for whoever resumes it (RS-STEP-10).
sub tell_session {
    my $file = $lease{file};
    if (!defined $file) {
        return unless $R{state} eq 'paused';
        directory("$root/.runstore");
        directory("$root/.runstore/sessions");
        $file = "$root/.runstore/sessions/" . bytes($id) . '.jsonl';
    }
    my @left;
    for my $g (@groups) {
        my @open = map { raw($steps[$_]{text} =~ s/\n\s*/ /gr) } grep { $steps[$_]{status} ne 'complete' } @{ $g->{in} };
        push @left, $g->{group} ? obj(parallel => \@open) : @open if @open;
    }
    my $line = emit(obj(type => 'runstore.session', version => num(1), runId => $id, ts => num(now_ms()), cwd => $C{cwd}, steps => \@left)) . "\n";
    my $f = append($file, $line);
    $f->sync or fail('cannot be flushed', $file, $! + 0);
    flush_directory(parent($file));
    $R{sessionFile} = text($file);
}

sub finish {
    return if $R{taken_away};
    # Both inboxes are closed before the result, and what came before that is taken up once more (RS-STEP-05).
    $R{closing} = 1;
    settle(sub {
        directory("$dir/control", safe => 1);
        for (qw(stop steer)) {
            replace("$dir/control", "$_-inbox-closed.json", emit(obj(version => num(1), closedAt => num(now_ms()), state => outcome()), ''), ORDERED)
                unless lstat "$dir/control/$_-inbox-closed.json";
        }
        1;
    });
    inbox();
    return if $R{taken_away};
    $R{state} = outcome();
    delete @R{qw(error)} if $R{state} eq 'complete';
    if ($R{state} eq 'failed' && !defined $R{error}) {
        my ($s) = grep { $_->{status} ne 'complete' } @steps;
        $R{error} = "step $s->{i}: " . ($s->{error} // $s->{status});
    }
    $R{endedAt} = now_ms();
    if ($lease{file} || $R{state} eq 'paused') { eval { settle(\&tell_session); 1 } or warn 'the session: ' . told($@) . "\n" }
    my $doc = eval { read_status() };
    if (ended_by_another($doc)) { $R{taken_away} = 1; return }
    if (defined $C{sessionId}) {
        eval { settle(\&publish); 1 } or do {
            ($R{state}, $R{error}) = ('failed', 'the result cannot be published: ' . told($@));
            warn "$R{error}\n";
        };
    }
    settle(\&tell_status) or return;
    $own = 1;
    eval { settle(sub { mark_ended(); 1 }); 1 } or warn told($@) . "\n";
    event('subagent.run.completed', lifecycleArtifactVersion => num(3), status => $R{state}, durationMs => num($R{endedAt} - $R{startedAt}));
    news('completed');
    settle(\&tell_writers);
    my $had = $lease{dir};
    if (release_lease() && $had) { settle(sub { acknowledge_release(); 1 }) }
}

# ---- all of it ----------------------------------------------------------------------------------------------------------------------

sub main {
    die "usage: runner.pl <configuration>\n" unless @ARGV == 1;
    read_configuration($ARGV[0]);
    know_self();
    $stage = 'start-up';
    start_up();
    $stage = 'let-in';
    begin();
    work();
    finish();
    release_lease();
    return 0;
}

my $code = eval { main() };
if (!defined $code) {
    my $why = told($@);
    warn "$why\n";
    if    ($stage eq 'start-up') { give_up($why) }
    elsif ($stage eq 'let-in')   { cannot_begin($why) }
    else { kill 'KILL', -$_->{pid} for grep { $_->{pid} && $_->{status} eq 'running' } @steps }
    $code = 1;
}
exit $code;
