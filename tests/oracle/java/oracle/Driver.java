package oracle;

import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;

/**
 * Plays lives: reads a plan per line on stdin and writes the rows of its life to stdout, then a row of source "end".
 */
public final class Driver {
    private Driver() {
    }

    public static void main(String[] arguments) throws IOException {
        SeededIds.install();
        LogCapture.install();
        ObjectMapper mapper = new ObjectMapper();
        JsonGenerator out = mapper.createGenerator(System.out);
        out.setRootValueSeparator(null);
        System.setOut(System.err);
        BufferedReader plans = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = plans.readLine(); line != null; line = plans.readLine()) {
            Plan plan = mapper.readValue(line, Plan.class);
            Recorder recorder = new Recorder(out);
            World world = new World(plan, recorder);
            SeededIds.drawFrom(world.idsOf("the cluster"));
            LogCapture.into(world::log);
            world.play();
            LogCapture.into(null);
            recorder.end();
        }
    }
}
