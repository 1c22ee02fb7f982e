package oracle;

import static net.bytebuddy.matcher.ElementMatchers.isConstructor;
import static net.bytebuddy.matcher.ElementMatchers.isMethod;
import static net.bytebuddy.matcher.ElementMatchers.isPrivate;
import static net.bytebuddy.matcher.ElementMatchers.isPublic;
import static net.bytebuddy.matcher.ElementMatchers.isStatic;
import static net.bytebuddy.matcher.ElementMatchers.nameEndsWith;
import static net.bytebuddy.matcher.ElementMatchers.named;
import static net.bytebuddy.matcher.ElementMatchers.not;
import static net.bytebuddy.matcher.ElementMatchers.takesArgument;

import java.lang.instrument.Instrumentation;
import java.util.List;
import net.bytebuddy.agent.builder.AgentBuilder;
import net.bytebuddy.asm.Advice;
import net.bytebuddy.description.method.MethodDescription;
import net.bytebuddy.implementation.bytecode.assign.Assigner;
import net.bytebuddy.matcher.ElementMatcher;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecord;

/** Which methods of Kafka's coordinator, and of the mocks of its tests, call {@link Hooks}. */
final class Weaving {
    private static final String GROUPS = "org.apache.kafka.coordinator.group.GroupMetadataManager";
    private static final String MOCKS = "org.apache.kafka.coordinator.common.runtime.MockCoordinator";

    private AgentBuilder agent = new AgentBuilder.Default()
        .disableClassFormatChanges()
        .with(AgentBuilder.Listener.StreamWriting.toSystemError().withErrorsOnly());

    private Weaving() {
        ElementMatcher.Junction<MethodDescription> request = isPublic()
            .and(takesArgument(0, nameEndsWith("RequestContext"))).and(takesArgument(1, nameEndsWith("RequestData")));
        weave(GROUPS, request, Request.class);
        weave(GROUPS, isMethod().and(not(isPrivate())).and(not(isStatic())).and(not(request)), Other.class);
        weave(GROUPS + "TestContext", isConstructor(), Context.class);
        weave(GROUPS + "TestContext", named("replay"), Replay.class);
        weave(GROUPS + "TestContext", named("commit"), Commit.class);
        weave(GROUPS + "TestContext", named("rollback"), Rollback.class);
        weave(MOCKS + "Timer", named("poll"), Poll.class);
        weave(MOCKS + "Executor", named("poll"), Poll.class);
    }

    /** To be called before any of these classes is loaded. */
    static void install(Instrumentation instrumentation) {
        new Weaving().agent.installOn(instrumentation);
    }

    private void weave(String type, ElementMatcher<? super MethodDescription> methods, Class<?> advice) {
        agent = agent.type(named(type))
            .transform((builder, description, loader, module, domain) -> builder.visit(Advice.to(advice).on(methods)));
    }

    static final class Request {
        @Advice.OnMethodEnter
        static Object enter(@Advice.AllArguments Object[] arguments) {
            return Hooks.asked(arguments);
        }

        @Advice.OnMethodExit(onThrowable = Throwable.class)
        static void exit(
            @Advice.Enter Object call,
            @Advice.Return(typing = Assigner.Typing.DYNAMIC) Object result,
            @Advice.Thrown Throwable thrown
        ) {
            Hooks.handled(call, result, thrown);
        }
    }

    static final class Other {
        @Advice.OnMethodEnter
        static void enter() {
            Hooks.entered();
        }

        @Advice.OnMethodExit(onThrowable = Throwable.class)
        static void exit(
            @Advice.AllArguments Object[] arguments,
            @Advice.Return(typing = Assigner.Typing.DYNAMIC) Object result,
            @Advice.Thrown Throwable thrown
        ) {
            if (thrown == null) Hooks.done(arguments, result);
            else Hooks.failed();
        }
    }

    static final class Context {
        @Advice.OnMethodExit
        static void exit(@Advice.This Object context, @Advice.AllArguments Object[] parts) {
            Hooks.built(context, parts);
        }
    }

    static final class Replay {
        @Advice.OnMethodEnter
        static void enter(@Advice.Argument(0) CoordinatorRecord record) {
            Hooks.replayed(record);
        }
    }

    static final class Commit {
        @Advice.OnMethodExit
        static void exit() {
            Hooks.committed();
        }
    }

    static final class Rollback {
        @Advice.OnMethodExit
        static void exit() {
            Hooks.rolledBack();
        }
    }

    static final class Poll {
        @Advice.OnMethodEnter
        static void enter() {
            Hooks.entered();
        }

        @Advice.OnMethodExit
        static void exit(@Advice.Return List<?> results) {
            Hooks.polled(results);
        }
    }
}
